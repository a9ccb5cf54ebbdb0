# SPDX-License-Identifier: Apache-2.0
"""What a rank sees of its machine without MPI, and what is wrong with that over all ranks.

A check is a module with two functions: `collect()` reads the facts of this rank (plain values that JSON knows),
`judge(job)` is pure and compares the facts of all ranks. `hpccoll.init()` does the cheap ones (at_start.py),
`hpccoll doctor` all of them and more (hpccoll/tools/doctor).
"""
