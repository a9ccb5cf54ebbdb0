# SPDX-License-Identifier: Apache-2.0
"""A launcher of our own, for jobs without MPI: ranks on this machine, and over ssh on others.

`hpccoll run` uses it with --launcher ssh, and where there is no mpirun. `plan.py` turns a job into a command, which is
`starter.py`; it keeps the store in which the ranks meet, and an agent (`agent.py`) per host, which starts the ranks.
"""
