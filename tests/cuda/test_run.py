# SPDX-License-Identifier: Apache-2.0
"""What is to run on the first machine with a GPU runs, with the fakes in the place of driver and NCCL.

What the fakes lack (a framework that sees a GPU, compute-sanitizer) is said; its programs run here as far as they go
without it, so that no typing error is left for the GPU's minutes.
"""

import importlib
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "benchmarks" / "gpu" / "run.py"
Script = Callable[..., tuple[str, dict[str, Any]]]


@pytest.fixture
def script(fake_cuda: Path, build_nccl: Callable[..., Path], tmp_path: Path) -> Script:
    """`script("--only", "rates", status=1)`: what it said, and what stands in gpu.json."""
    nccl = build_nccl("-DFAKE_NCCL_VERSION=23003")
    libraries = {"HPCCOLL_CUDA_LIBRARY": str(fake_cuda), "HPCCOLL_NCCL_LIBRARY": str(nccl)}

    def run(*options: str, status: int = 0, **variables: str) -> tuple[str, dict[str, Any]]:
        done = subprocess.run(
            [sys.executable, SCRIPT, tmp_path / "gpu", "--quick", *options],
            env={**os.environ, **libraries, **variables}, cwd=tmp_path, capture_output=True, text=True,
            timeout=880, check=False,
        )  # fmt: skip
        assert done.returncode == status, done.stdout + done.stderr
        file = tmp_path / "gpu" / "gpu.json"
        return done.stdout, json.loads(file.read_text()) if file.exists() else {}

    return run


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_all_steps(script: Script, tmp_path: Path) -> None:
    said, record = script("--copy", str(tmp_path / "copy"))
    steps = record["steps"]
    assert {s["status"] for s in steps.values()} <= {"passed", "there", "not run"}, said
    lacking = {why for s in steps.values() if s["status"] == "not run" for why in s["why"]}
    assert lacking <= {f"no {thing}" for thing in ("torch", "cupy", "jax", "compute-sanitizer")}, said
    assert record["machine"]["gpu"] == "fake device 0"
    kinds = {figure["what"].split()[0].rstrip(":,") for figure in record["figures"]}
    assert kinds >= {"pack", "unpack", "rates-staged", "rates-nccl", "staging-staged", "beside-staged"}
    assert json.loads((tmp_path / "copy" / "gpu.json").read_text()) == record
    with tarfile.open(tmp_path / "copy" / "logs.tar.gz") as logs:
        assert "rates-staged.log" in logs.getnames()
    said, again = script()
    assert "passed  " not in said, "a step that had passed was run again"
    assert again["steps"]["rates-staged"] == steps["rates-staged"]


@pytest.mark.timeout(300)
@pytest.mark.slow
def test_what_is_missing_is_said_at_once(script: Script, tmp_path: Path) -> None:
    said, record = script("--check", status=1, HPCCOLL_CUDA_LIBRARY=str(tmp_path / "libnone.so"))
    assert "missing: gpu: OSError" in said and "not run without it: contract-driver kernels" in said
    assert not record


@pytest.mark.timeout(300)
@pytest.mark.slow
def test_time_that_is_over_costs_no_results(script: Script, tmp_path: Path) -> None:
    """Results of before are kept; what did not begin is for the next call."""
    folder = tmp_path / "gpu"
    folder.mkdir()
    before = {"status": "passed", "results": [{"what": "sum, finished", "bytes": 4, "seconds": [2e-5]}]}
    (folder / "gpu.json").write_text(json.dumps({"steps": {"rates-staged": before}}))
    said, record = script("--seconds", "0", "--only", "rates")
    assert "rates-nccl                   not begun: the time is over" in said
    assert record["steps"]["rates-staged"] == before
    assert record["figures"][0]["value"] == pytest.approx(20)


# ---- what needs a framework ---------------------------------------------------------------------------


@pytest.mark.timeout(300)
@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "nodes"), [(1, 1), (4, 2)])
def test_the_programs_of_arrays(fake_cuda: Path, fake_nccl: Path, ranks: int, nodes: int) -> None:
    """With arrays over the fake driver in the place of CuPy's and PyTorch's."""
    command = [sys.executable, "-m", "hpccoll", "run", "-np", ranks, "--nodes", nodes, "--timeout", 250]
    done = subprocess.run(
        [*map(str, command), sys.executable, Path(__file__).with_name("arrays_job.py")],
        env={
            **os.environ, "HPCCOLL_CUDA_LIBRARY": str(fake_cuda), "HPCCOLL_NCCL_LIBRARY": str(fake_nccl),
            "NCCL_MULTI_RANK_GPU_ENABLE": "1",
        },
        capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    line = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))
    assert line["ranks"] == ranks and line["checked"] > 200


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("program", "says"),
    [
        (("torch_jobs.py", "train"), "good: FSDP2, rank 0 of 2"),
        (("torch_jobs.py", "peers", "--repeats", "2", "--mebibytes", "1"), '"what": "DDP\'s step", "backend": "gloo"'),
        (("jax_job.py",), '"what": "JAX on the GPU"'),
    ],
    ids=["train", "peers", "jax"],
)
def test_the_programs_of_frameworks(program: tuple[str, ...], says: str) -> None:
    """On the CPU."""
    pytest.importorskip(program[0].split("_")[0])
    launch = [sys.executable, "-m", "hpccoll", "run", "-np", "2", "--timeout", "250", sys.executable]
    done = subprocess.run(
        [*launch, str(SCRIPT.with_name(program[0])), *program[1:]], env={**os.environ, "BENCHMARK_DEVICE": "cpu"},
        capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert says in done.stdout


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_the_calls_of_pytorch_pack_alike(dtype: str) -> None:
    """They are verified where they are made; here on the CPU."""
    torch = pytest.importorskip("torch")
    calls = importlib.import_module("pack").torch_calls(torch, [5, 2000, 0, 7], dtype, "cpu")
    assert set(calls) == {"_foreach_copy_"} | ({"cat"} if dtype == "float32" else set())


def test_figures() -> None:
    """A result whose figures are known."""
    sys.path.insert(0, str(SCRIPT.parent))
    from figures import figures

    def line(what: str, nbytes: int, *seconds: float, **more: Any) -> dict[str, Any]:
        return {"what": what, "bytes": nbytes, "seconds": list(seconds), **more}

    packs = [
        line(what, 100, took, set="gigabytes", buffer="float32")
        for what, took in (("one copy", 0.9), ("pack", 1.0), ("cat", 1.5))
    ]
    large = 64 << 20
    steps = {
        "pack": {"results": packs},
        "rates-staged": {
            "results": [
                line("sum, finished", 4, 3e-5, 1e-5, 2e-5),
                line("down and up", large, 0.8),
                line("sum, finished", large, 1.0),
            ]
        },
        "staging-staged": {
            "results": [
                line("link", large, 2.0),
                line("MPI, whole", large, 5.0),
                line("MPI, pieces", large, 3.0),
                line("allreduce", large, 4.0),
            ]
        },
        "sums": {
            "results": [
                line("one copy", 2 * large, 1.0, inputs=1, dtype="float32"),
                line("sum", 3 * large, 2.0, inputs=2, dtype="float32"),
            ]
        },
        "peers-2": {
            "results": [
                line("allreduce", 8, took, dtype="float32", ranks=2, backend=name)
                for name, took in (("hpccoll", 1.0), ("gloo", 4.0))
            ]
        },
        "beside-auto": {"results": [{"alone": 1.0, "beside": 1.5, "price": 0.25}]},
        "arrays-torch-1": {"results": [line("small", 0, 25e-6, library="torch", mode="auto", ranks=1)]},
        "kernels": {"status": "not run"},
    }
    values = [figure["value"] for figure in figures(steps)]
    assert values == pytest.approx([0.9, 1.5, 20, 0.8, 0.75, 0.75, 0.25, 2, 0.5, 25])
