# SPDX-License-Identifier: Apache-2.0
"""The rendezvous of a new rank of an elastic job whose program calls init() itself, before elastic.run().

The ranks of the job do not wait for its preparations: it gets a World of its own, until run() lets it come in.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from hpccoll.rendezvous.single_process import SingleProcess

__all__ = ["KNOBS", "Apart", "Place"]

KNOBS: dict[str, Any] = {"nodes": "", "timeline": "", "autotune": False, "check": False, "verbose": 0}
"""Knobs of its World: it cannot be several nodes, and must not write the files of the job's rank 0."""


class Place(NamedTuple):
    """The place of a new rank in the job, if all ranks that are being started come in and no other one is lost."""

    rank: int
    size: int
    local_rank: int
    """Its slot on its host."""
    local_size: int
    cross_rank: int
    """Its number among the ranks with its slot, one per host."""
    cross_size: int


class Apart(SingleProcess):
    """See Rendezvous: this process alone."""

    def __init__(self, place: Place) -> None:
        """:param place: for rank(), size() and the functions like them"""
        self.place = place

    def describe(self) -> str:
        """See Rendezvous."""
        return "a new rank of an elastic job, which comes in when it calls elastic.run()"
