# SPDX-License-Identifier: Apache-2.0
"""Every command and program of the README and the docs is run (blocks.py says how a page tells)."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from blocks import BLOCKS, ROOT, Block, Run, parameters


def test_every_block_says_how_it_is_run() -> None:
    assert BLOCKS
    assert not [str(b) for b in BLOCKS if b.how is None]


@pytest.mark.parametrize("block", [b for b in BLOCKS if b.how and b.how.startswith("run elsewhere")], ids=str)
def test_elsewhere_exists(block: Block) -> None:
    assert block.how
    assert (ROOT / block.how.removeprefix("run elsewhere: ")).exists()


@pytest.mark.timeout(180)
@pytest.mark.parametrize("block", parameters(on_slurm=False))
def test_block_runs(block: Run, tmp_path: Path) -> None:
    skip_without_frameworks(block)
    script = block.written(tmp_path)
    done = subprocess.run(
        ["bash", "-e", script], cwd=tmp_path, env=environment(), text=True, timeout=170, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert done.returncode == 0, f"{script.read_text()}\n{done.stdout}"


def skip_without_frameworks(block: Run) -> None:
    """Frameworks that only these programs use; `make test-all` installs them."""
    programs = "\n".join(block.files.values())
    frameworks = "accelerate|keras|lightning|tensorflow|transformers"
    named = set(re.findall(rf"^(?:import|from) ({frameworks})\b", programs, re.MULTILINE))
    if absent := sorted(name for name in named if importlib.util.find_spec(name) is None):
        pytest.skip(f"no {', '.join(absent)}: pip install --group test --group frameworks")


def environment() -> dict[str, str]:
    """This Python's programs first, and what a small machine (and its root) needs for mpirun."""
    allowed = {f"{p}_ALLOW_RUN_AS_ROOT{s}": "1" for p in ("OMPI", "PRTE") for s in ("", "_CONFIRM")}
    return {
        **os.environ,
        **allowed,
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",  # Open MPI 5
        "OMPI_MCA_rmaps_base_oversubscribe": "1",  # Open MPI 4
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
