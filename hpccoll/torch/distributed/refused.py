# SPDX-License-Identifier: Apache-2.0
"""Calls of torch.distributed that this rank alone refuses: the other ranks get an error, and the next calls match.

The calls of a group match by their order, so a refused one counts.
"""

import functools
from collections.abc import Callable
from typing import Any

from hpccoll import _core, errors

__all__ = ["NotBegunError", "tells"]


class NotBegunError(Exception):
    """The library has refused a request of a call."""

    def __init__(self, error: errors.HpccollError, name: str, requests: int) -> None:
        """
        :param error: what the program gets
        :param name: of the request
        :param requests: how many of the call are not begun: this one and those after it
        """  # noqa: D205, D212
        super().__init__(error)
        self.error, self.name, self.requests = error, name, requests


def tells(operation: str, *, coalesced: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a method of ProcessGroup report to the other ranks an error that only this rank has.

    :param operation: of the library
    :param coalesced: the method makes a request for each of its inputs, which are its second argument
    """

    def decorate(method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def call(group: Any, *arguments: Any, **options: Any) -> Any:
            known = _core.failures()
            try:
                return method(group, *arguments, **options)
            except NotBegunError as refused:
                group.tell_refusal(operation, refused.requests, refused.error, refused.name)
                raise refused.error from None
            except Exception as error:
                if _core.failures() == known:
                    group.tell_refusal(operation, len(arguments[1]) if coalesced else 1, error)
                raise

        return call

    return decorate
