# SPDX-License-Identifier: Apache-2.0
"""`hpccoll submit`: makes a job script for a site and a command, and submits it.

`site` reads the profile of a machine (sites/*.toml, or a user's own file), `layout` calculates the tasks per node and
their cores, `script` renders templates/*.j2, and `cli` prints, checks and submits the script.
"""
