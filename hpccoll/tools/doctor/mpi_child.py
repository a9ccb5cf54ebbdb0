# SPDX-License-Identifier: Apache-2.0
"""The child process that calls MPI: it exchanges reports with the other ranks through it, and is examined with them."""

from hpccoll import inherited
from hpccoll.checks.survey import RankReport
from hpccoll.tools.doctor import examine, exchange, mpi
from hpccoll.tools.doctor.stages import NoMpiError, Stages, mpi_world


def main() -> None:
    """Examine this rank; the parent process passes its rank report and the options."""
    stages = Stages()
    try:
        comm = mpi_world(stages)
    except NoMpiError as reason:
        stages.report({"no MPI": str(reason)})
        return
    seen = RankReport(**stages.given["report"])
    seen.facts[mpi.NAME] = mpi.collect(dict(inherited.environment()))
    stages.begin("the first exchange through MPI")
    ranks = exchange.MpiExchange(comm)
    ranks.allgather(None)
    mine = RankReport(comm.Get_rank(), seen.host, seen.node, seen.facts)
    stages.report(examine.examine(ranks, mine, stages.given["options"], stages.begin, comm))
    stages.finish()


if __name__ == "__main__":
    main()
