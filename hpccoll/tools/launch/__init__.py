# SPDX-License-Identifier: Apache-2.0
"""`hpccoll run`: starts a job with the installed mpirun or mpiexec.

Each family of MPIs is one module with a pure function `plan(job) -> Plan` (argv and environment). A program that calls
`hpccoll.init()` does not need this launcher: mpirun, mpiexec, srun and jsrun can start it as well.
"""
