# SPDX-License-Identifier: Apache-2.0
"""`hpccoll bench`: measures collectives, with peers in the same run; shows, merges and compares files of results.

`statistics`, `collectives` and `results` use no other module; `files` stores results; `libraries` calls the measured
libraries; `measure` times the calls; `training`, `control` (with `predecessor`) and `startup` (with `one_rank`) measure
more than calls; `conditions` checks the job; `job` runs on the ranks; `start` launches them.
"""
