# SPDX-License-Identifier: Apache-2.0
"""The child that calls MPI: it meets the others through it and is examined with them."""

from __future__ import annotations

from hpccoll import config
from hpccoll.checks.survey import RankReport
from hpccoll.tools.doctor import examine, exchange, mpi
from hpccoll.tools.doctor.stages import Stages, mpi_world


def main() -> None:
    """Given are the card that the watching process wrote, and the options."""
    stages = Stages()
    comm = mpi_world(stages)
    mine = RankReport(**stages.given["report"])
    mine.facts[mpi.NAME] = mpi.collect(dict(config.environment()))
    stages.begin("the first exchange through MPI")
    ranks = exchange.MpiExchange(comm)
    ranks.allgather(None)
    mine = RankReport(comm.Get_rank(), mine.host, mine.node, mine.facts)
    stages.report(examine.examine(ranks, mine, stages.given["options"], stages.begin, comm))
    stages.finish()


if __name__ == "__main__":
    main()
