# SPDX-License-Identifier: Apache-2.0
"""Steps that succeed or fail on all ranks together."""

import os
import platform
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from hpccoll import errors, objects
from hpccoll.compared import from_list
from hpccoll.text import some_ranks
from hpccoll.worlds import World

__all__ = ["CheckpointError", "target_of", "together", "why"]


class CheckpointError(errors.HpccollError, OSError):
    """A checkpoint could not be written or read, on all ranks. The text names rank, host, file and reason."""


def target_of(own: World, path: Any, refused: str = "") -> tuple[Path, str]:
    """Return the file that a path names on this rank, links followed, and a word that is the same on all ranks.

    :param refused: the reason for which this rank refuses another argument of the call; "": none
    :raises InvalidArgumentError: a rank refuses the path or another argument, or names of files differ; on all ranks
    """
    target = Path()
    try:
        target = Path(os.path.realpath(path))
    except (TypeError, ValueError) as error:
        refused = f"path is {path!r}: {error}"
    said = objects.allgather(own.core, (secrets.token_hex(6), refused, target.name), None)
    for rank, (_, text, _) in enumerate(said):
        if text:
            raise errors.InvalidArgumentError(f"checkpoint: rank {rank}: {text}")
    names = from_list(name for _, _, name in said)
    if not names.alike:
        found = "; ".join(f"{name} on {some_ranks(names.ranks(i))}" for i, name in enumerate(names.values))
        raise errors.InvalidArgumentError(f"checkpoint: the ranks give different files: {found}")
    return target, said[0][0]


def together(
    own: World, file: Path, action: Callable[[], Any] | None, *, keep: bool = False, then: str = ""
) -> list[Any]:
    """Run a step, which may fail, on the ranks that have one; then all ranks raise, or get the results of all.

    A rank that gets SystemExit or KeyboardInterrupt in its step reports the failure before it ends, so that no other
    rank waits for it or takes the step as done.

    :param keep: return only this rank's result, because results are large
    :param then: the consequence of a failure, as part of the error text
    :raises CheckpointError: it failed on a rank; all ranks know
    """
    result, text = None, ""
    try:
        result = action() if action else None
    except Exception as error:  # noqa: BLE001 - the other ranks must learn of any error
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
    """Format the rank, the file and the error."""
    return f"checkpoint {file}: rank {own.rank} (host {platform.node()}): {str(error) or type(error).__name__}"
