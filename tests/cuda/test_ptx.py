# SPDX-License-Identifier: Apache-2.0
"""The pack kernels as text: what is checked in is what the pinned compiler makes, and GPUs of all kinds take it."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXTS = ROOT / "hpccoll" / "_kernels"
SCRIPT = ROOT / "ext" / "cuda" / "kernels" / "ptx.py"
Packages = Callable[..., Path]
GPUS = ["sm_70", "sm_80", "sm_90", "sm_100"]
TYPES = ["f16", "bf16", "f32", "f64"]
KERNELS = {
    "pack": {f"hc_pack_{a}_{b}" for a in TYPES for b in TYPES} | {f"hc_pack_copy{n}" for n in (1, 2, 4, 8)},
    "sum": {f"hc_sum_{t}" for t in ("i8", "u8", "i32", "u32", "i64", "u64", *TYPES)},
}
both = pytest.mark.parametrize("name", KERNELS)


def ptx(name: str) -> str:
    return (TEXTS / f"{name}.ptx").read_text()


@both
def test_the_text_is_for_old_drivers_and_has_all_kernels(name: str) -> None:
    text = ptx(name)
    code = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("//"))
    assert code.startswith(".version 7.0\n.target sm_70\n.address_size 64\n")
    assert set(re.findall(r"\.visible \.entry (\w+)\(", text)) == KERNELS[name]
    assert set(re.findall(r"\.param \.align 8 \.b8 \w+\[(\d+)\]", text)) == {"4096"}


@both
def test_no_kernel_keeps_its_arguments_or_values_in_memory(name: str) -> None:
    """A local copy of 4 KB of arguments for each thread would be correct, and slow."""
    for kernel, body in re.findall(r"\.visible \.entry (\w+)\((.*?\n)}\n", ptx(name), re.DOTALL):
        assert ".local" not in body, kernel
        assert "ld.global.v4.u32" in body or "st.global.v4.u32" in body, f"{kernel}: no access of 16 bytes"


# ---- with compilers from PyPI, which need neither a GPU nor a driver ------------------------------------


def compile_both(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), *map(str, arguments)], capture_output=True, text=True, timeout=100
    )


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_text_is_what_the_compiler_makes(packages: Packages) -> None:
    done = compile_both(packages("nvidia-cuda-nvrtc-cu12==12.4.127"), "--check")
    assert done.returncode == 0, done.stderr or f"run {SCRIPT.name}: a text is not up to date"


@pytest.fixture(scope="module")
def toolkit(packages: Packages) -> Path:
    """NVRTC and the assembler of CUDA 12.9, the last that knows sm_70."""
    return packages("nvidia-cuda-nvrtc-cu12==12.9.86", "nvidia-cuda-nvcc-cu12==12.9.86")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("gpu", GPUS)
def test_the_source_compiles_for_each_gpu(toolkit: Path, gpu: str, tmp_path: Path) -> None:
    done = compile_both(toolkit, "--cubin", gpu, tmp_path)
    assert done.returncode == 0, done.stderr
    for name in KERNELS:
        assert (tmp_path / f"{name}.cubin").read_bytes().startswith(b"\x7fELF")


@pytest.mark.slow
@pytest.mark.timeout(600)
@both
@pytest.mark.parametrize("gpu", GPUS)
def test_the_ptx_assembles_for_each_gpu(toolkit: Path, gpu: str, name: str, tmp_path: Path) -> None:
    """By the rules of its version; nothing is spilled."""
    (tmp_path / "its.ptx").write_text(ptx(name))
    assemble = [toolkit / "nvidia/cuda_nvcc/bin/ptxas", "-v", f"-arch={gpu}", "its.ptx", "-o", "its.cubin"]
    done = subprocess.run(assemble, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("0 bytes spill stores, 0 bytes spill loads") == len(KERNELS[name])
