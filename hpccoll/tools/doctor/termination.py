# SPDX-License-Identifier: Apache-2.0
"""SIGTERM: an abort of one rank makes many launchers end the job, and who knows something says it then."""

from __future__ import annotations

import signal


class Terminated(BaseException):
    """To end."""


def raise_on_sigterm() -> None:
    """Raise Asked at the first SIGTERM."""
    signal.signal(signal.SIGTERM, _terminate)


def _terminate(_number: int, _frame: object) -> None:
    ignore_sigterm()
    raise Terminated


def ignore_sigterm() -> None:
    """No SIGTERM from now on: what is known is printed. Launchers kill by SIGKILL who does not end soon."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
