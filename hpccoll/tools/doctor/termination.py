# SPDX-License-Identifier: Apache-2.0
"""SIGTERM as an exception: many launchers end a job when one rank aborts, and each rank first prints its report."""

import signal


class Terminated(BaseException):
    """The launcher asked this process to end."""


def raise_on_sigterm() -> None:
    """Raise Terminated in the main thread at the first SIGTERM, and ignore the following ones."""
    signal.signal(signal.SIGTERM, _terminate)


def _terminate(_number: int, _frame: object) -> None:
    ignore_sigterm()
    raise Terminated


def ignore_sigterm() -> None:
    """Ignore SIGTERM from now on, so that the report is printed. Launchers send SIGKILL if it takes too long."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
