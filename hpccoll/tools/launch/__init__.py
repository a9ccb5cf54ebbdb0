# SPDX-License-Identifier: Apache-2.0
"""Starting a job: `hpccoll run`, on top of the installed mpirun or mpiexec.

A family of MPIs is one module with one pure function, `plan(job) -> Plan` (argv and environment). A script
that calls `hpccoll.init()` needs no launcher of ours: mpirun, mpiexec, srun and jsrun will do.
"""
