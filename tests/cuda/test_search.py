# SPDX-License-Identifier: Apache-2.0
"""Where the driver and NCCL are looked for, and what is said where they are not there: by the built extension."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from ctypes.util import find_library
from pathlib import Path
from typing import Any

import pytest

from hpccoll import cuda
from hpccoll.tools import info
from hpccoll.tools.doctor import gpus

pytestmark = pytest.mark.timeout(120)
Build = Callable[..., Path]


def python(*arguments: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-P", *arguments],
        env={**os.environ, **environment}, text=True, capture_output=True, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def look(**environment: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = json.loads(python("-m", "hpccoll.cuda", **environment))
    return found


def nccl(named: str, files: list[str], before: str = "", **environment: str) -> dict[str, Any]:
    show = f"print(json.dumps(_cuda.nccl({named!r}, {files})))"
    code = f"{before}\nimport json\nfrom hpccoll import _cuda\n{show}"
    facts: dict[str, Any] = json.loads(python("-c", code, **environment))
    return facts


def test_a_named_driver_tells_its_devices(fake_cuda: Path) -> None:
    facts = look(HPCCOLL_CUDA_LIBRARY=str(fake_cuda), FAKE_CUDA_DEVICES="2")["CUDA driver"]
    assert facts == {
        "library": str(fake_cuda),
        "version": "CUDA 12.8",
        "devices": [
            {"name": "fake device 0", "pci": "0000:4a:00.0"},
            {"name": "fake device 1", "pci": "0000:4b:00.0"},
        ],
    }


def test_the_doctor_sees_the_same_devices(fake_cuda: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HPCCOLL_CUDA_LIBRARY", str(fake_cuda))
    (device,) = gpus.visible()["visible"]
    assert (device["pci"], device["name"]) == ("0000:4a:00.0", "fake device 0")
    monkeypatch.setenv("FAKE_CUDA_FAIL", "cuInit:100:1")
    facts = gpus.visible()
    assert facts["visible"] == []
    assert "no CUDA-capable device is detected" in facts["why none"]


def test_a_driver_without_a_device_is_quoted(fake_cuda: Path) -> None:
    facts = look(HPCCOLL_CUDA_LIBRARY=str(fake_cuda), FAKE_CUDA_FAIL="cuInit:100:1")["CUDA driver"]
    assert facts["missing"] == f"initialising of {fake_cuda}: no CUDA-capable device is detected (100)"
    assert "nvidia-smi" in facts["to do"]


def test_what_was_named_and_is_not_there_is_not_replaced(fake_nccl: Path) -> None:
    package = [str(fake_nccl)]
    facts = nccl("/no/such/libnccl.so", package)
    assert facts == {
        "missing": "NCCL 2.14 or later was not found: /no/such/libnccl.so: cannot open shared object file: "
        "No such file or directory",
        "to do": "unset HPCCOLL_NCCL_LIBRARY, or name the file of NCCL 2.14 or later",
    }


@pytest.mark.skipif(find_library("nccl") is not None, reason="this machine has NCCL")
def test_everything_that_was_tried_is_said_in_order() -> None:
    facts = nccl("", ["/no/such/package.so"])
    gone = "cannot open shared object file: No such file or directory"
    assert facts == {
        "missing": "NCCL 2.14 or later was not found: libnccl.so.2 is not in this process; "
        f"/no/such/package.so: {gone}; libnccl.so.2: {gone}",
        "to do": "`pip install nvidia-nccl-cu12` (or -cu13, as the driver), or name the file with HPCCOLL_NCCL_LIBRARY",
    }


@pytest.fixture
def packages(fake_nccl: Path, tmp_path: Path) -> Path:
    """A folder of Python packages that holds what nvidia-nccl-cu12 installs."""
    folder = tmp_path / "nvidia" / "nccl" / "lib"
    folder.mkdir(parents=True)
    (folder / "libnccl.so.2").symlink_to(fake_nccl)
    for package in (tmp_path / "nvidia", tmp_path / "nvidia" / "nccl"):
        (package / "__init__.py").touch()  # first on the path, it goes before a real one that is installed
    return tmp_path


def test_the_python_package_is_found(packages: Path) -> None:
    path = os.pathsep.join([str(packages), os.environ.get("PYTHONPATH", "")])
    facts = look(PYTHONPATH=path, FAKE_NCCL_VERSION="21903")["NCCL"]
    assert facts == {
        "library": str(packages / "nvidia/nccl/lib/libnccl.so.2"),
        "version": "2.19.3",
    }


def test_what_the_process_has_goes_before_the_package(build_nccl: Build, packages: Path) -> None:
    loaded = build_nccl("-Wl,-soname,libnccl.so.2")
    facts = nccl(
        "",
        [str(packages / "nvidia/nccl/lib/libnccl.so.2")],
        f"import ctypes; x = ctypes.CDLL({str(loaded)!r})",
    )
    assert facts["library"] == str(loaded)


def test_libraries_of_the_system_are_tried_last(build_nccl: Build, tmp_path: Path) -> None:
    (tmp_path / "libnccl.so.2").symlink_to(build_nccl())
    assert nccl("", [], LD_LIBRARY_PATH=str(tmp_path))["library"] == str(tmp_path / "libnccl.so.2")


def test_a_function_that_is_needed_and_missing_is_named(build_nccl: Build) -> None:
    broken = build_nccl("-DFAKE_NCCL_BROKEN")
    facts = nccl(str(broken), [])
    assert facts["missing"] == f"{broken} has no ncclAllReduce: it is too old, or not NCCL 2.14 or later"


def test_info_shows_both(fake_cuda: Path, fake_nccl: Path) -> None:
    knobs = {"HPCCOLL_CUDA_LIBRARY": str(fake_cuda), "HPCCOLL_NCCL_LIBRARY": str(fake_nccl)}
    said = python("-m", "hpccoll", "info", **knobs)
    assert f"CUDA driver\n    library: {fake_cuda}\n    version: CUDA 12.8\n" in said
    assert f"NCCL\n    library: {fake_nccl}\n    version: 2.28.9\n" in said
    assert "\n    moved: by NCCL 2.28.9 between the ranks of a node, else staged" in said


@pytest.mark.parametrize(
    ("mode", "nccl", "said"),
    [
        ("auto", True, "by NCCL 2.28.9 between the ranks of a node, else staged through pinned host memory"),
        ("nccl_flat", True, "by NCCL 2.28.9 between all ranks, else staged through pinned host memory"),
        ("auto", False, "staged through pinned host memory: there is no NCCL (see there)"),
        ("staged", True, "staged through pinned host memory"),
        ("nccl", False, "no NCCL (see there), which HPCCOLL_DEVICE_MODE=nccl asks for"),
    ],
)
def test_info_says_what_moves_device_memory(monkeypatch: pytest.MonkeyPatch, mode: str, nccl: bool, said: str) -> None:
    monkeypatch.setenv("HPCCOLL_DEVICE_MODE", mode)
    found = {"version": "2.28.9"} if nccl else cuda.missing("it was not found", "install it")
    facts = info.device_memory({"version": "CUDA 12.8"}, found)
    assert said == facts.get("moved", facts.get("missing"))


def test_a_knob_that_is_none_is_an_answer_too() -> None:
    facts = json.loads(python("-m", "hpccoll", "info", "--json", HPCCOLL_NCCL_LIBRAY="x"))
    assert "did you mean HPCCOLL_NCCL_LIBRARY?" in facts["device memory"]["missing"]
    assert "did you mean HPCCOLL_NCCL_LIBRARY?" in facts["CUDA driver"]["missing"]
