# SPDX-License-Identifier: Apache-2.0
"""Steps that succeed on all ranks or on none, as all of them know."""

from __future__ import annotations

import platform
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from hpccoll import errors, objects
from hpccoll.worlds import World

__all__ = ["CheckpointError", "together", "why"]


class CheckpointError(errors.HpccollError, OSError):
    """A checkpoint could not be written or read, on all ranks. The text names rank, host, file and reason."""


def together(
    own: World, file: Path, action: Callable[[], Any] | None, *, keep: bool = False, then: str = ""
) -> list[Any]:
    """Do a step, which may fail, on the ranks that have one; then all raise, or get what each one's returned.

    A rank that is told to end (SystemExit, KeyboardInterrupt) in its step says so before it goes: no other one waits
    for it, or takes the step as done.

    :param keep: the results are large: this rank's alone
    :param then: what a failure means, as part of the error
    :raises CheckpointError: it failed on a rank; all ranks know
    """
    result, text = None, ""
    try:
        result = action() if action else None
    except Exception as error:  # noqa: BLE001 - whatever it is, the others must hear of it
        text = why(own, file, error)
    except BaseException as error:
        with suppress(errors.HpccollError):
            objects.allgather(own.core, (why(own, file, error), None), None)
        raise
    said = objects.allgather(own.core, (text, None if keep else result), None)
    for problem, _ in said:
        if problem:
            raise CheckpointError(f"{problem}: {then}" if then else problem)
    return [result] if keep else [value for _, value in said]


def why(own: World, file: Path, error: BaseException | str) -> str:
    """Say which rank has which problem with a file."""
    return f"checkpoint {file}: rank {own.rank} (host {platform.node()}): {str(error) or type(error).__name__}"
