# SPDX-License-Identifier: Apache-2.0
"""`hpccoll doctor`: finds what will keep a job from starting or make it slow, from the lowest layer up.

The process that the launcher starts never calls MPI itself (command.py): it looks at the machine, starts a child that
calls MPI (mpi_child.py, stages.py) and monitors it (child_monitor.py). Where MPI starts, the child exchanges values
with the other ranks through it. Where it does not, the ranks exchange them in a shared folder (exchange.py), or through
the hub that started them over ssh (hosts.py). The ranks that have exchanged their reports are examined alike
(examine.py): addresses are tried (reach.py), links measured (links.py, measure.py, rounds.py), and each check judges
the reports of all ranks.

A check is a module with `judge(survey) -> list[Finding]`, mostly with `collect() -> Facts` beside it: those in
hpccoll/checks, and here build.py, mpi.py, launcher.py, addresses.py, limits.py, rails.py, gpus.py, reach.py, clocks.py
and network.py. training.py says what the measured network means for a training.
"""
