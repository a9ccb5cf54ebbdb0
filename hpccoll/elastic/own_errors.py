# SPDX-License-Identifier: Apache-2.0
"""The library's errors inside errors of a framework: a compiled program can raise only the framework's errors.

The text begins with the library's class: "hpccoll.PeerLostError: rank 1 was lost".
"""

import re

from hpccoll import errors

__all__ = ["own_error"]

_OURS = re.compile(rf"hpccoll\.({'|'.join(errors.__all__)}): (.*?)(?=\n\t \[\[|\Z)", re.DOTALL)
"""An error of this library in a longer text. A framework may add lines that name the nodes of its program."""


def own_error(error: BaseException) -> errors.HpccollError | None:
    """Return the library's error in the text of a framework's error, if there is one."""
    found = _OURS.search(str(error))
    return getattr(errors, found[1])(found[2]) if found else None
