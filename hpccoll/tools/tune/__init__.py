# SPDX-License-Identifier: Apache-2.0
"""The command `hpccoll tune`: knobs for a machine, found by measuring there.

`choose.py` decides from results, `cli.py` measures and writes the site file. docs/model.md explains both.
"""
