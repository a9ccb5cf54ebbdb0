# SPDX-License-Identifier: Apache-2.0
"""The child that calls MPI: it meets the others through it and is examined with them."""

from __future__ import annotations

from hpccoll import config
from hpccoll.checks.finding import Card
from hpccoll.tools.doctor import examine, meetings, mpi
from hpccoll.tools.doctor.stages import Stages, mpi_world


def main() -> None:
    """Given are the card that the watching process wrote, and the options."""
    stages = Stages()
    comm = mpi_world(stages)
    card = Card(**stages.given["card"])
    card.facts[mpi.NAME] = mpi.collect(dict(config.environment()))
    stages.begin("the first exchange through MPI")
    meeting = meetings.ThroughMpi(comm)
    meeting.allgather(None)
    card = Card(comm.Get_rank(), card.host, card.node, card.facts)
    stages.report(examine.examine(meeting, card, stages.given["options"], stages.begin, comm))
    stages.finish()


if __name__ == "__main__":
    main()
