# SPDX-License-Identifier: Apache-2.0
"""init_process_group("hpccoll") in a program that does not import hpccoll.torch; what `import torch` costs by that."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

PROGRAM = """
import sys
import torch
import torch.distributed as dist

assert not [name for name in sys.modules if name.split(".")[0] == "hpccoll"]
assert dist.is_backend_available("hpccoll")
dist.init_process_group("hpccoll")
x = torch.ones(3)
dist.all_reduce(x)
assert x.tolist() == [dist.get_world_size()] * 3
print(f"<rank {dist.get_rank()} of {dist.get_world_size()}>", flush=True)
dist.destroy_process_group()
"""


@pytest.fixture
def installed(tmp_path: Path) -> str:
    """A folder for PYTHONPATH with what an installation records: the entry points of pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    record = tmp_path / "hpccoll_as_installed-1.dist-info"
    record.mkdir()
    record.joinpath("METADATA").write_text("Metadata-Version: 2.1\nName: hpccoll-as-installed\nVersion: 1\n")
    lines = [
        f"[{group}]\n" + "".join(f"{name} = {place}\n" for name, place in points.items())
        for group, points in project["entry-points"].items()
    ]
    record.joinpath("entry_points.txt").write_text("".join(lines))
    return os.pathsep.join((str(tmp_path), str(ROOT), os.environ.get("PYTHONPATH", "")))


def run(command: list[str], path: str) -> tuple[int, str]:
    done = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": path}, cwd=path.split(os.pathsep)[0], text=True, timeout=110,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout


HPCCOLL_RUN = ("-m", "hpccoll", "run", "-np", "2", "--timeout", "100", "python")
WITHOUT_MPI = ("-m", "hpccoll", "run", "--launcher", "ssh", "-np", "2", "--timeout", "100", "python")
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "launcher",
    [
        pytest.param(HPCCOLL_RUN, id="hpccoll run"),
        pytest.param(WITHOUT_MPI, id="hpccoll run without MPI", marks=pytest.mark.slow),
        pytest.param(TORCHRUN, id="torchrun", marks=pytest.mark.slow),
    ],
)
def test_a_job_names_the_backend_and_imports_nothing(launcher: tuple[str, ...], installed: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    status, output = run([sys.executable, *launcher, "program.py"], installed)
    assert status == 0, output
    assert "<rank 0 of 2>" in output
    assert "<rank 1 of 2>" in output


@pytest.mark.slow
def test_a_mixture_is_refused_though_nothing_was_imported(installed: str) -> None:
    program = (
        "import torch.distributed as d\n"
        "d.init_process_group('cpu:hpccoll,cuda:nccl', store=d.HashStore(), rank=0, world_size=1)"
    )
    status, output = run([sys.executable, "-c", program], installed)
    assert status != 0
    assert "hpccoll cannot be one part of a process group" in output


@pytest.mark.slow
def test_an_hpccoll_that_cannot_be_loaded_breaks_its_own_users_only(installed: str, tmp_path: Path) -> None:
    """`import torch` works; naming the backend says what is wrong."""
    broken = tmp_path / "hpccoll"
    broken.mkdir()
    broken.joinpath("__init__.py").write_text("raise ImportError('the C extension is not built')")
    program = "import torch, torch.distributed as d; print(torch.ones(1), flush=True); d.init_process_group('hpccoll')"
    status, output = run([sys.executable, "-c", program], installed)
    assert status != 0
    assert output.startswith("tensor([1.])\nTraceback")
    assert output.strip().endswith("ImportError: the C extension is not built")


@pytest.mark.parametrize("flags", [(), ("-W", "error")], ids=["warnings", "errors"])
def test_import_torch_outlives_what_torch_may_change(tmp_path: Path, flags: tuple[str, ...]) -> None:
    """torch ends `import torch` with the error of an entry point; a fake of torch stands here for one that changed."""
    torch = tmp_path / "torch"
    torch.mkdir()
    torch.joinpath("__init__.py").touch()
    torch.joinpath("distributed.py").write_text("class Backend: pass\n")  # without backend_list
    program = "import hpccoll_torch_backend as b; b.register(); print('imported', flush=True)"
    status, output = run([sys.executable, *flags, "-c", program], os.pathsep.join((str(tmp_path), str(ROOT))))
    assert status == 0 and "imported\n" in output, output
    assert output.count("hpccoll could not give torch its name") == 1 and "backend_list" in output


@pytest.mark.slow
def test_an_import_of_hpccoll_torch_comes_first_or_second(installed: str) -> None:
    for first, second in (("torch", "hpccoll.torch"), ("hpccoll.torch", "torch")):
        program = (
            f"import {first}; import {second}; import torch.distributed as d\n"
            "assert d.Backend('hpccoll') == 'hpccoll' and d.Backend.HPCCOLL == 'hpccoll'\n"
            "assert d.Backend.backend_list.count('hpccoll') == 1\n"
            "d.init_process_group('hpccoll', store=d.HashStore(), rank=0, world_size=1)\n"
            "print(type(d.group.WORLD).__module__)"
        )
        status, output = run([sys.executable, "-c", program], installed)
        assert status == 0, output
        assert output.strip().endswith("hpccoll.torch.distributed.process_group")
