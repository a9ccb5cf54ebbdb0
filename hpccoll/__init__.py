# SPDX-License-Identifier: Apache-2.0
"""hpccoll: collective operations for the ranks of a supercomputer job.

    >>> world = hpccoll.init()
    >>> hpccoll.allreduce(np.ones(4))
    array([2., 2., 2., 2.])
    >>> hpccoll.shutdown()

The package has `init()` and `shutdown()`, the collective operations, point-to-point messages, the World and the errors.
`hpccoll.torch`, `.tensorflow`, `.keras`, `.jax` and `.mxnet` are the interfaces for frameworks, `.elastic`, `.ray` and
`.spark` start jobs that change or that others start; `hpccoll.testing` runs ranks as threads of one process.
"""

import typing as _typing
from importlib import import_module as _import_module
from importlib.machinery import PathFinder as _PathFinder

from hpccoll import not_there as _not_there

_not_there.tell_imports()

if _typing.TYPE_CHECKING:
    from hpccoll.default_world import *  # noqa: F403 - mypy does not follow the stars of public.py
    from hpccoll.errors import *  # noqa: F403
    from hpccoll.public import *  # noqa: F403
    from hpccoll.public import __version__ as __version__
elif not _PathFinder.find_spec("hpccoll._core", __spec__.submodule_search_locations):
    from hpccoll import unbuilt as _unbuilt

    __all__ = []  # for mkdocstrings, which reads `__all__` of modules only if their package has one in some branch
    raise _unbuilt.explain(ImportError("No module named 'hpccoll._core'", name="hpccoll._core"))

_MODULES = (
    "data", "elastic", "frontend", "io", "jax", "keras", "mxnet", "net", "observe", "ray", "rendezvous", "spark",
    "study", "tensorflow", "testing", "torch",
)  # fmt: skip
"""Public modules that are not in __all__: a program imports them if it needs them."""
_USED_BY_THE_LIBRARY = ("compression", "config", "errors", "net", "observe", "rendezvous")
"""Public modules that are there without an import of theirs."""
_OF_PUBLIC = ("__all__", "__version__")


def _is_module(name: str) -> bool:
    return _PathFinder.find_spec(f"hpccoll.{name}", __spec__.submodule_search_locations) is not None


if not _typing.TYPE_CHECKING:  # to a type checker it would mean that the package has every name

    def __getattr__(name: str) -> _typing.Any:
        """Import the core, NumPy and the rest at the first use of a public name: `hpccoll run` starts without them.

        Python also asks here for a module (`from hpccoll import detect`), before it looks for its file.
        """
        if name in _USED_BY_THE_LIBRARY:
            return _import_module(f"hpccoll.{name}")
        if name in _OF_PUBLIC or not (name.startswith("_") or _is_module(name)):
            public = _import_module("hpccoll.public")
            globals().update({each: getattr(public, each) for each in (*_OF_PUBLIC, *public.__all__)})
            if name in globals():
                return globals()[name]
        raise AttributeError(f"module 'hpccoll' has no attribute {name!r}", name=name)


def __dir__() -> list[str]:
    """List the public names, without the library's internal modules."""
    public = _import_module("hpccoll.public")
    given = {*public.__all__, *(module for module in _MODULES if module in globals())}
    return sorted(given | {name for name in globals() if name.startswith("__")} | {*_OF_PUBLIC})
