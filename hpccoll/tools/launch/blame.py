# SPDX-License-Identifier: Apache-2.0
"""Which rank is to blame where several have failed: the others fail because one of them has."""

from collections.abc import Iterable
from dataclasses import dataclass

from hpccoll import errors

__all__ = ["Failure", "error_of"]


@dataclass(frozen=True)
class Failure:
    """How one rank has failed."""

    rank: int
    host: str
    text: str
    """Its traceback, or how its process has ended."""
    error: BaseException | None = None
    """What it raised, if that is known."""
    lost: bool = False
    """The process has ended without an answer."""

    @property
    def blame(self) -> int:
        """The lower the likelier it is that this failure caused the others."""
        if self.lost:
            return 0
        return 2 if isinstance(self.error, errors.RecoverableError | errors.ShutDownError) else 1


def error_of(failures: Iterable[Failure]) -> errors.RankError:
    """Make the error that names the rank whose failure came first.

    A lost rank goes before one that raised, and an exception of its own before the loss of others.

    :param failures: of different ranks, in the order in which they were noticed; at least one
    """
    first = min(failures, key=lambda failure: failure.blame)
    made = errors.RankError(first.rank, first.host, first.text, lost=first.lost)
    made.__cause__ = first.error
    return made
