# SPDX-License-Identifier: Apache-2.0
"""Whole programs: those in the shape of Horovod's examples, and that of docs/spark.md."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "spark.md"


@pytest.fixture(autouse=True)
def needs() -> None:
    for module in ("pyspark", "torch", "keras", "lightning", "sklearn"):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"no {module}: pip install 'hpccoll[spark,torch,keras]' lightning scikit-learn")
    if not shutil.which("java"):
        pytest.skip("no java on PATH: apt-get install default-jre-headless")


def output(*command: str | Path) -> str:
    variables = {"PYSPARK_PYTHON": sys.executable, "KERAS_BACKEND": "torch", "SPARK_LOCAL_IP": "127.0.0.1"}
    ended = subprocess.run(
        [sys.executable, *command], env=os.environ | variables, capture_output=True, text=True, timeout=800
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    return ended.stdout


@pytest.mark.parametrize("framework", ["pytorch", "keras"])
def test_a_program_in_the_shape_of_horovods(framework: str, tmp_path: Path) -> None:
    program = HERE / "programs" / f"{framework}_spark_digits.py"
    said = output(program, "--master", "local[2]", "--num-proc", "2", "--work-dir", tmp_path)
    accuracy = re.search(r"Test accuracy: ([\d.]+)", said)
    assert accuracy and float(accuracy[1]) > 0.85, said
    assert [path.name for path in (tmp_path / "runs").rglob("*.pickle")] == ["checkpoint.pickle"]


def test_a_program_with_an_input_per_column(tmp_path: Path) -> None:
    """Sales differ by a factor of 2.7 between the shops alone."""
    said = output(HERE / "programs" / "keras_spark_sales.py", "--master", "local[2]", "--num-proc", "2",
                  "--work-dir", tmp_path)  # fmt: skip
    best, error = re.search(r"Best RMSPE: ([\d.]+)", said), re.search(r"Test error: ([\d.]+)", said)
    assert best and float(best[1]) < 0.2 and error and float(error[1]) < 0.15, said


def test_the_page(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) == 3
    (tmp_path / "page.py").write_text("\n".join(blocks))
    output(tmp_path / "page.py")
