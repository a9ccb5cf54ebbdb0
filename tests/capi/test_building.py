# SPDX-License-Identifier: Apache-2.0
"""How programs find the library: `hpccoll config`, make, CMake, Meson; and the library without Python."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILDING = ROOT / "examples" / "c" / "building"


def run(*words: object, **variables: str) -> str:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        [str(word) for word in words], cwd=ROOT, env={**os.environ, "PATH": path, **variables}, timeout=200, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return done.stdout.strip()


def config(*options: str) -> str:
    return run(sys.executable, "-m", "hpccoll", "config", *options)


def means(output: str) -> bool:
    return "2 ranks: the mean is 0.5, the sums are 1 and 3" in output


@pytest.mark.timeout(200)
def test_make(mpicc, job, tmp_path) -> None:
    command = f"{sys.executable} -m hpccoll config"
    run("make", "-C", tmp_path, "-f", BUILDING / "Makefile", f"CC={mpicc}",
        f"HPCCOLL_CONFIG={command}", PYTHONPATH=str(ROOT))  # fmt: skip
    assert means(job(2, tmp_path / "hello"))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_cmake(mpicc, needs, job, tmp_path) -> None:
    needs("cmake")
    run("cmake", "-S", BUILDING, "-B", tmp_path, f"-DMPI_C_COMPILER={mpicc}", f"-Dhpccoll_DIR={config('--cmakedir')}")
    run("cmake", "--build", tmp_path)
    assert means(job(2, tmp_path / "hello"))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_cmake_builds_the_fortran_module(needs, tmp_path) -> None:
    needs("cmake", "gfortran")
    (tmp_path / "alone.f90").write_text(
        'program alone\n use hpccoll\n type(hpccoll_world) :: world\n call hpccoll_world_alone(world, "verbose=0")\n'
        ' print "(i0)", hpccoll_size(world)\n call hpccoll_world_free(world)\nend program\n'
    )
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.18)\nproject(alone C Fortran)\nfind_package(hpccoll REQUIRED)\n"
        "add_executable(alone alone.f90)\ntarget_link_libraries(alone hpccoll::fortran)\n"
    )
    run("cmake", "-S", tmp_path, "-B", tmp_path / "build", f"-Dhpccoll_DIR={config('--cmakedir')}")
    run("cmake", "--build", tmp_path / "build")
    assert run(tmp_path / "build" / "alone") == "1"


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_meson(mpicc, needs, job, tmp_path) -> None:
    needs("meson", "pkg-config", "ninja")
    source = tmp_path / "c" / "building"
    source.mkdir(parents=True)
    (source / "meson.build").write_bytes((BUILDING / "meson.build").read_bytes())
    (tmp_path / "c" / "hello.c").write_bytes((BUILDING.parent / "hello.c").read_bytes())
    run("meson", "setup", tmp_path / "build", source, CC=mpicc, PKG_CONFIG_PATH=config("--pkgconfigdir"))
    run("meson", "compile", "-C", tmp_path / "build")
    assert means(job(2, tmp_path / "build" / "hello"))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_installed_without_python(mpicc, needs, job, fake_cuda, tmp_path) -> None:
    """The texts of the kernels lie beside the library, too."""
    needs("pkg-config")
    run("make", "install-c", f"PREFIX={tmp_path}", "CC=cc", "CFLAGS=-O1")
    assert (tmp_path / "lib" / "libhpccoll.so").is_symlink()
    found = {"PKG_CONFIG_PATH": str(tmp_path / "lib" / "pkgconfig")}
    flags = run("pkg-config", "--cflags", "--libs", "hpccoll", **found).split()
    run(mpicc, "examples/c/hello.c", *flags, "-o", tmp_path / "hello")
    assert means(job(2, tmp_path / "hello"))
    run(mpicc, "-Iext", "tests/capi/devices.c", *flags, "-ldl", "-o", tmp_path / "devices")
    settings = {"HPCCOLL_CUDA_LIBRARY": fake_cuda, "FAKE_CUDA_DEVICES": 2, "HPCCOLL_DEVICE_MODE": "staged"}
    assert "fine\n" in job(2, tmp_path / "devices", **settings)


def test_config_says_what_it_can(capsys) -> None:
    from hpccoll.__main__ import main

    assert main(["config"]) == 1
    assert "--cflags" in capsys.readouterr().err
    assert main(["config", "--cflags", "--prefix"]) == 0
    assert capsys.readouterr().out.split() == [f"-I{ROOT}/hpccoll/include", f"{ROOT}/hpccoll"]
