# SPDX-License-Identifier: Apache-2.0
"""`hpccoll bench`: measures collectives, with peers in the same run; shows, merges and compares files of results.

`statistics`, `collectives` and `results` know nothing else; `files` stores results; `libraries` calls what is measured;
`measure` times it; `training`, `control` (with `predecessor`) and `startup` (with `one_rank`) measure more than calls;
`conditions` judges the job; `job` is what the ranks do; `start` launches them.
"""
