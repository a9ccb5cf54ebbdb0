# SPDX-License-Identifier: Apache-2.0
"""`hpccoll model`: parameters fitted to measured times, and predictions of other numbers of nodes.

`messages` counts what travels between nodes, `chunks` how a batch is cut, `agreement` how the control tree is shaped;
all three follow the C code exactly. `predict` turns them into seconds, `fit` finds the parameters.
"""
