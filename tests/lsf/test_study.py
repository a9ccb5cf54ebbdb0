# SPDX-License-Identifier: Apache-2.0
"""A study through the stand-in for LSF, on 1 and 2 nodes."""

import subprocess
import sys
from pathlib import Path

import pytest
from lsf_cluster import Cluster

from hpccoll.tools.bench import files

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
STUDY = """
name = "s"
nodes = [1, 2]
repetitions = 1
site = "summit"
account = "A"
oversubscribed = true
minutes = 5
[bench]
command = ["training", "--model", "even:1000:4", "--compute", "{size}", "--least", "6", "--most", "6", "--warmup", "1"]
size = 0.004
[arms.fp32]
[arms.fp16]
variables = { HPCCOLL_WIRE = "fp16" }
"""


def test_from_toml_to_report(lsf: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text(STUDY)
    command = [sys.executable, "-P", "-m", "hpccoll", "study", "run", file, "--poll", "0.5", "--report"]
    done = subprocess.run(
        command, env=lsf.environment | {"STAND_IN_BSUB_PARSE_SCRIPT": "Y"}, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, timeout=500, check=False,
    )  # fmt: skip
    logs = "".join(f"{log.name}:\n{log.read_text()}" for log in (tmp_path / "s.study" / "logs").glob("*"))
    assert done.returncode == 0, done.stdout + logs
    found = files.read(tmp_path / "s.study" / "s.h5")
    assert {(key.arm, key.nodes) for key in found.cases} == {(arm, n) for arm in ("fp32", "fp16") for n in (1, 2)}
    numbers = {launch["job"] for launch in found.launches}
    assert len(numbers) == 2 and all(done.stdout.count(f"job {number}: ") == 1 for number in numbers)
    assert {rank["host"] for launch in found.launches for rank in launch["placement"]} == {"a01n01", "a01n02"}
    assert "<svg" in (tmp_path / "s.study" / "report.html").read_text()
