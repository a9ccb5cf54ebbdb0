# SPDX-License-Identifier: Apache-2.0
"""Starting a job: `hpccoll run`, on top of the installed mpirun or mpiexec.

A family of MPIs is one module with one pure function, `plan(job) -> Plan` (argv and environment). `hpccoll`
itself needs no launcher of ours: a script that calls `hpccoll.init()` runs under mpirun, mpiexec, srun, jsrun.
"""
