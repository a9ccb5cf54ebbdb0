# SPDX-License-Identifier: Apache-2.0
"""The library's errors inside errors of a framework: a compiled program can raise only the framework's errors.

The text begins with the library's class: "hpccoll.PeerLostError: rank 1 was lost".
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
    """Return the library's error in the text of a framework's error, if there is one."""
    found = _OURS.search(str(error))
    return getattr(errors, found[1])(found[2]) if found else None


def raises_own(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function raise the library's errors in place of a framework's errors with their text.

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
            found = own_error(error)
            if found is None:
                raise
            raise found from error

    return translated
