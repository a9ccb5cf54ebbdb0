# SPDX-License-Identifier: Apache-2.0
"""A World of Python for code of C in the same process."""

from hpccoll import _core

__all__ = ["ForC"]


class ForC:
    """The access of C code to a World, as a method of the World."""

    core: _core.Set

    def capsule(self) -> object:
        """Give a World to code of C in this process; both sides may use it.

        C takes the pointer in the capsule: `hpccoll_world_from_python(PyCapsule_GetPointer(capsule, "hpccoll.world"),
        &world)`. Python goes on to own the World: after its `shutdown()`, calls of C get HPCCOLL_SHUT_DOWN. Calls
        without a name match by their order among those of one language.

            >>> type(hpccoll.capsule()).__name__
            'PyCapsule'

        :returns: a capsule "hpccoll.world"
        :raises ShutDownError: the World has been shut down
        """
        return self.core.capsule()
