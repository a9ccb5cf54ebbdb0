# SPDX-License-Identifier: Apache-2.0
"""The online tuner: a job that measures its own steps and changes knobs while it runs (HPCCOLL_AUTOTUNE).

`search` decides, `worker` measures and proposes. A proposal becomes an entry of the World's log, so that it takes
effect on all ranks after the same entry (docs/control-plane.md).
"""
