# SPDX-License-Identifier: Apache-2.0
"""hpccoll's launcher for jobs without MPI: ranks on this machine, and over ssh on others.

`hpccoll run` uses it with --launcher ssh, and where there is no mpirun. `plan.py` turns a job into a command that runs
`starter.py`. That keeps the store for the ranks' rendezvous, and starts an agent (`agent.py`) per host, which starts
the ranks.
"""
