# SPDX-License-Identifier: Apache-2.0
"""Checks of the machine: each rank collects facts without MPI, and the facts of all ranks are judged together.

A check is a module with two functions: `collect()` reads the facts of this rank (plain JSON values), and
`judge(survey)` compares the facts of all ranks; it reads nothing else. `hpccoll.init()` runs the cheap checks
(at_start.py), `hpccoll doctor` all of them and more (hpccoll/tools/doctor).
"""
