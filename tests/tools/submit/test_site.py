# SPDX-License-Identifier: Apache-2.0
"""Site profiles: hpccoll's own are consistent, and mistakes in a user's are named."""

from dataclasses import replace
from pathlib import Path

import pytest

from hpccoll.__main__ import main
from hpccoll.tools.submit.script import Request, render
from hpccoll.tools.submit.site import SiteError, load, names, parse

ROOT = Path(__file__).resolve().parents[3]
OWN = """
name = "mine"
title = "my cluster"
scheduler = "slurm"
launcher = "srun"
mpi = "pmix"

[node]
sockets = 2
numa = 2
cores = 48
gpus = [{ numa = 0 }, { numa = 1 }]

[[node.nics]]
name = "ib0"
gbit = 100
near_gpus = [0]
"""


@pytest.mark.parametrize("name", names())
def test_profiles_are_valid_and_say_where_they_are_from(name: str) -> None:
    site = load(name)
    assert site.name == name
    assert site.unchecked
    assert site.sources or name.startswith("generic")
    assert site.node.cores % (len(site.node.gpus) or site.node.numa) == 0, "no core is left over"


def test_what_is_particular_to_a_site_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """In the script, before it is submitted, and in the list of the sites."""
    words = ["--site", "frontier", "--account", "A", "--dry-run", "train.py"]
    main(["submit", *words])
    main(["submit", "--sites"])
    script, listed = (said := capsys.readouterr()).out.split("frontier: Frontier, Oak Ridge")
    for note in ("nothing of this profile was run there", "hpccoll does not support AMD GPUs: "):
        assert f"\n# frontier: {note}" in script and f"\n  note: {note}" in listed
        assert f"hpccoll submit: frontier: {note}" in said.err
    assert {name for name in names() if "run there" in str(load(name).notes)} == {"frontier", "perlmutter", "summit"}


def test_tasks_see_all_gpus_where_mpi_and_nccl_need_it() -> None:
    """Each that sees one GPU: Cray MPICH fails in cuIpcOpenMemHandle (WarpX, issue 6382), NCCL goes without NVLink."""
    script = render(load("perlmutter"), Request(("python", "train.py"), nodes=1, minutes=60, name="train"))
    assert "#SBATCH --gpus-per-node=4\n#SBATCH --gpu-bind=none\n" in script and "--gpus-per-task" not in script
    assert "takes that of its local rank" in script


def test_summit() -> None:
    site = load("summit")
    assert "decommissioned in November 2024" in site.title
    assert (site.node.sockets, site.node.cores, len(site.node.gpus), site.launcher) == (2, 42, 6, "jsrun")
    assert [nic.near_gpus for nic in site.node.nics] == [[0, 1, 2], [3, 4, 5]]


def test_own_profile(tmp_path: Path) -> None:
    path = tmp_path / "site.toml"
    path.write_text(OWN)
    site = load(str(path))
    assert (site.title, site.node.cores, [gpu.numa for gpu in site.node.gpus]) == ("my cluster", 48, [0, 1])


def test_the_guides_profile_is_valid() -> None:
    block = (ROOT / "docs" / "slurm.md").read_text().split("```toml\n")[1].split("```")[0]
    site = parse(block, "docs/slurm.md")
    text = render(site, Request(("python", "train.py"), nodes=1, minutes=60, name="train"))
    assert "#SBATCH --gpus-per-node=2\n" in text and "#SBATCH --cpus-per-task=24\n" in text
    assert "--gres=gpu:2" in render(replace(site, gpu_directives=["--gres=gpu:2"]), Request(("x",), 1, 60, "x"))


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('scheduler = "slurm"', 'scheduler = "pbs"', "scheduler = 'pbs' is not one of slurm, lsf"),
        ('launcher = "srun"', 'launcher = "jsrun"', "launcher = 'jsrun': under slurm it is srun or mpirun"),
        ("cores = 48", 'cores = "48"', "node.cores = '48' is not a whole number"),
        ("cores = 48", "cores = true", "node.cores = True is not a whole number"),
        ("cores = 48", "cores = 0", "node.cores = 0: at least 1"),
        ("cores = 48", "core = 48", "node.core is no key of a site profile: did you mean cores?"),
        ("cores = 48\n", "", "node.cores is missing (cores that a job may use"),
        ("numa = 1 }", "numa = 2 }", "node.gpus[1].numa = 2: the node has NUMA domains 0 to 1"),
        ("near_gpus = [0]", "near_gpus = [2]", "node.nics[0].near_gpus: there is no GPU 2, the node has 2"),
        ("gbit = 100\n", "", "node.nics[0].gbit is missing"),
        ("[node]", "[node", "(at line 8, column 6)"),
        ('mpi = "pmix"', 'gpu_view = "some"', "gpu_view = 'some' is not all or own"),
        ("sockets = 2", "sockets = []", "node.sockets = [] is not a whole number"),
        ('mpi = "pmix"', 'environment = { "A;B" = "1" }', "environment: 'A;B' is no name of a variable"),
        ('mpi = "pmix"', r'directives = ["-q x\ntouch y"]', r"directives: '-q x\ntouch y' is not one line"),
        ('mpi = "pmix"', r'gpu_directives = [""]', "gpu_directives: '' is not one line"),
    ],
)
def test_what_is_wrong_is_said(old: str, new: str, says: str) -> None:
    assert old in OWN
    with pytest.raises(SiteError) as caught:
        parse(OWN.replace(old, new, 1), "mine.toml")
    assert str(caught.value).startswith("mine.toml: ") and says in str(caught.value)


def test_unknown_site_and_missing_file() -> None:
    with pytest.raises(SiteError, match=r"no site 'sumit': did you mean summit\?"):
        load("sumit")
    with pytest.raises(SiteError, match=r"nowhere/site\.toml: No such file"):
        load("nowhere/site.toml")
