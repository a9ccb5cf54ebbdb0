# SPDX-License-Identifier: Apache-2.0
"""Finds the rank whose failure caused the failures of other ranks."""

from collections.abc import Iterable
from dataclasses import dataclass

from hpccoll import errors

__all__ = ["Failure", "error_of"]


@dataclass(frozen=True)
class Failure:
    """The failure of one rank."""

    rank: int
    host: str
    text: str
    """Its traceback, or how its process has ended."""
    error: BaseException | None = None
    """The exception that it raised, if that is known."""
    lost: bool = False
    """The process has ended without an answer."""

    @property
    def blame(self) -> int:
        """A smaller value means that this failure more likely caused the others."""
        if self.lost:
            return 0
        return 2 if isinstance(self.error, errors.RecoverableError | errors.ShutDownError) else 1


def error_of(failures: Iterable[Failure]) -> errors.RankError:
    """Make the error that names the rank whose failure came first.

    A lost rank has priority over a rank that raised, and its own exception over an error about lost ranks.

    :param failures: of different ranks, in the order in which they were noticed; at least one
    """
    first = min(failures, key=lambda failure: failure.blame)
    made = errors.RankError(first.rank, first.host, first.text, lost=first.lost)
    made.__cause__ = first.error
    return made
