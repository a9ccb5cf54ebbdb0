# SPDX-License-Identifier: Apache-2.0
"""The rendezvous of a new rank of an elastic job whose program calls init() itself, before elastic.run().

The ranks of the job do not wait for its preparations: it gets a World of its own, until run() lets it come in.
"""

from typing import Any

from hpccoll.launch_protocol import Place
from hpccoll.rendezvous.single_process import SingleProcess

__all__ = ["KNOBS", "Apart"]

KNOBS: dict[str, Any] = {"nodes": "", "timeline": "", "autotune": False, "check": False, "verbose": 0}
"""Knobs of its World: it cannot be several nodes, and must not write the files of the job's rank 0."""


class Apart(SingleProcess):
    """See Rendezvous: this process alone."""

    def __init__(self, place: Place) -> None:
        """:param place: for rank(), size() and the functions like them"""
        self.place = place

    def describe(self) -> str:
        """See Rendezvous."""
        return "a new rank of an elastic job, which comes in when it calls elastic.run()"
