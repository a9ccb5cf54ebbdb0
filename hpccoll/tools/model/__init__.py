# SPDX-License-Identifier: Apache-2.0
"""`hpccoll model`: parameters fitted to measured times, and predictions of other numbers of nodes.

`messages` counts messages between nodes, `chunks` computes how a batch is cut, `agreement` computes the control tree;
all three follow the C code exactly. `predict` turns them into seconds, `fit` finds the parameters.
"""
