# SPDX-License-Identifier: Apache-2.0
"""The library's errors in errors of a framework: a compiled program can raise the framework's alone.

The text of those begins with the name of the library's class: "hpccoll.PeerLostError: rank 1 was lost".
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

from hpccoll import errors
from hpccoll.elastic.interrupt import HostsUpdatedInterrupt

__all__ = ["own_error", "raises_own"]

_OURS = re.compile(rf"hpccoll\.({'|'.join(errors.__all__)}): (.*?)(?=\n\t \[\[|\Z)", re.DOTALL)
"""What follows are lines in which a framework names the nodes of its program."""


def own_error(error: BaseException) -> errors.HpccollError | None:
    """Return the library's error that a framework has put into the text of its own, if it is one."""
    found = _OURS.search(str(error))
    return getattr(errors, found[1])(found[2]) if found else None


def raises_own(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function raise the library's errors where a framework's have their text.

    :param function: any function
    :returns: a function of the same arguments and result
    """

    @functools.wraps(function)
    def translated(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except (errors.HpccollError, HostsUpdatedInterrupt):
            raise
        except Exception as error:
            ours = own_error(error)
            if ours is None:
                raise
            raise ours from error

    return translated
