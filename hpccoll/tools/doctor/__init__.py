# SPDX-License-Identifier: Apache-2.0
"""`hpccoll doctor`: what will keep a job from starting or make it slow, from the lowest layer up.

The process that the launcher starts never calls MPI itself (command.py): it looks at the machine, starts a child
that calls MPI (inside.py, stages.py) and watches it (watch.py). Where MPI comes up the child meets the other
ranks through it; where it does not, the ranks meet in a shared folder (meetings.py) or at the hub that started them
over ssh (hosts.py). Whoever has met is examined alike (examine.py): addresses are tried (reach.py), links measured
(links.py, measure.py, rounds.py), and each check judges the cards of all ranks.

A check is a module with `judge(job) -> list[Finding]`, mostly with `collect() -> Facts` beside it: those in
hpccoll/checks, and here build.py, mpi.py, launcher.py, addresses.py, limits.py, rails.py, gpus.py, reach.py,
clocks.py and network.py; training.py says what the measured network means for a training.
"""
