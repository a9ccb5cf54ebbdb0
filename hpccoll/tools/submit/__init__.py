# SPDX-License-Identifier: Apache-2.0
"""From a site and a command to a job script: `hpccoll submit`.

`site` reads what a machine is like (sites/*.toml, or a user's own file), `layout` works out how many tasks with how
many cores, `script` renders templates/*.sh, `cli` shows, lints and submits.
"""
