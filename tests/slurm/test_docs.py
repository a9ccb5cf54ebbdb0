# SPDX-License-Identifier: Apache-2.0
"""The commands of the README and the docs that need Slurm, and programs that srun starts there."""

from pathlib import Path

import pytest
from blocks import Run, parameters
from cluster import Cluster


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("this_python_first")
@pytest.mark.parametrize("block", parameters(on_slurm=True))
def test_block_runs(slurm: Cluster, block: Run, tmp_path: Path) -> None:
    script = block.written(tmp_path)
    slurm.run("bash", "-e", "-c", f"cd {tmp_path} && . {script}", timeout=250)
