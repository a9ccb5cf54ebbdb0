# SPDX-License-Identifier: Apache-2.0
"""Warnings of errors that nobody has seen, because the program has dropped the handle of an asynchronous call."""

import warnings

from hpccoll import errors

__all__ = ["warn_of_lost_error"]


def warn_of_lost_error(who: str, error: BaseException, more: str = "") -> None:
    """Warn of the error of an operation whose handle the program has dropped without a wait for it.

    What breaks a World, and its end, reach the program in other calls: there is no warning of them.

    :param who: the rank
    :param error: what a wait would have raised
    :param more: what the reader must know of other such errors
    """
    if isinstance(error, errors.RecoverableError | errors.ShutDownError):
        return
    warnings.warn_explicit(  # the line of the program where it comes to light has nothing to do with it
        f"{who}: the program has dropped a handle without wait() or synchronize(), and so this error{more}: "
        f"{type(error).__name__}: {error}",
        RuntimeWarning,
        "hpccoll",
        1,
    )
