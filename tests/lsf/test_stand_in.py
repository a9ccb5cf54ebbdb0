# SPDX-License-Identifier: Apache-2.0
"""The stand-in runs jobs: variables, files, exit codes, arrays, signals."""

import os
import sys
from pathlib import Path

import pytest
from lsf_cluster import Cluster, until

pytestmark = pytest.mark.timeout(120)


def test_variables_and_hosts_of_a_job(lsf: Cluster) -> None:
    """As IBM's "Environment variables set for job execution" describes them."""
    script = '#!/bin/bash\n#BSUB -n 4\n#BSUB -R "span[ptile=2]"\nhostname\necho $LSB_MCPU_HOSTS\necho $LSB_HOSTS\n'
    script += "xargs < $LSB_DJOB_HOSTFILE\necho $LSB_JOBINDEX $LSB_DJOB_NUMPROC $LSB_QUEUE\nexit 3\n"
    number = lsf.submit(script=script)
    assert lsf.wait(number) == [["EXIT", "3", "1"]]
    hosts = "a01n01 a01n01 a01n02 a01n02"
    assert lsf.output(number).splitlines() == ["a01n01", "a01n01 2 a01n02 2", hosts, hosts, "0 4 normal"]


def test_summit_has_a_launch_node_and_takes_the_scripts_name(lsf: Cluster, tmp_path: Path) -> None:
    """`bsub < script` "is not needed (and will not work) on Summit" (its User Guide)."""
    script = tmp_path / "job.lsf"
    script.write_text("#!/bin/bash\n#BSUB -nnodes 2\nhostname\necho $LSB_MCPU_HOSTS\njsrun -n2 -r1 hostname\n")
    status, said = lsf.run("bsub", script=script.read_text(), check=False, summit=True)
    assert status == 255 and "does not work on Summit" in said
    number = lsf.submit(script, summit=True)
    assert lsf.wait(number) == [["DONE", "-", "1"]], lsf.output(number)
    first, second, *hosts = lsf.output(number).splitlines()
    assert (first, second) == ("batch1", "batch1 1 a01n01 42 a01n02 42")
    assert {"a01n01", "a01n02"} <= set(hosts)  # mpirun may print a warning of its own


RANK = """
import os, pathlib, time
names = "JSM_NAMESPACE_RANK JSM_NAMESPACE_SIZE JSM_NAMESPACE_LOCAL_RANK JSM_NAMESPACE_LOCAL_SIZE OMPI_COMM_WORLD_RANK "
names += "OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_LOCAL_RANK OMPI_COMM_WORLD_LOCAL_SIZE PMIX_RANK STAND_IN_PLACES GIVEN"
print("rank", os.environ.get("CUDA_VISIBLE_DEVICES"), *(os.environ[n] for n in names.split()),
      sorted(os.sched_getaffinity(0)), flush=True)
rank = os.environ["JSM_NAMESPACE_RANK"]
pathlib.Path("printed." + rank).touch()
if rank == "3":  # its status ends the others, and mpirun then drops what they have printed
    limit = time.monotonic() + 30
    while len(list(pathlib.Path().glob("printed.*"))) < 4 and time.monotonic() < limit:
        time.sleep(0.05)
    time.sleep(0.5)
    raise SystemExit(4)
"""


def test_jsrun_starts_ranks_with_their_variables_and_status(lsf: Cluster, tmp_path: Path) -> None:
    """The variables are those of a jsrun that Trilinos' pull request 5598 shows."""
    (tmp_path / "rank.py").write_text(RANK)
    script = tmp_path / "job.lsf"
    command = "jsrun -n4 -r2 -a1 -c1 -g1 -EGIVEN=yes --smpiargs=-gpu -X1 python -S rank.py"
    script.write_text(f"#!/bin/bash\n#BSUB -nnodes 2\n#BSUB -alloc_flags smt1\ncd {tmp_path}\n{command}\nexit $?\n")
    number = lsf.submit(script, summit=True)
    assert lsf.wait(number) == [["EXIT", "4", "1"]], lsf.output(number)
    processors = sorted(os.sched_getaffinity(0))
    for rank in range(4):
        local, each = rank % 2, [processors[rank % 2 % len(processors)]]
        line = f"rank {local} {rank} 4 {local} 2 {rank} 4 {local} 2 {rank} {{{4 * local}:1}} yes {each}"
        assert line in lsf.output(number).splitlines()


def test_an_array_runs_one_element_after_the_other(lsf: Cluster) -> None:
    script = "date +%s.%N; sleep 0.1; date +%s.%N; exit $((LSB_JOBINDEX == 2))\n"
    number = lsf.submit("-J", "a[1-3]%1", script=script)
    assert lsf.wait(number) == [["DONE", "-", "1"], ["EXIT", "1", "1"], ["DONE", "-", "1"]]
    times = list(map(float, lsf.output(number).split()))
    assert len(times) == 6 and times == sorted(times)


def test_bkill_and_its_signals(lsf: Cluster) -> None:
    """`bkill -s` sends one signal; `bkill` begins with SIGINT. A job that ends by a signal has 128 and its number."""
    script = '#!/bin/bash\n#BSUB -n 1\ntrap "echo warned" USR1\necho up\n'
    script += "while true; do sleep 3 & wait; done\n"  # bash ignores SIGINT if its foreground command ends regularly
    number = lsf.submit(script=script)
    until(lambda: "up" in lsf.output(number), "the script")
    lsf.run("bkill", "-s", "USR1", number)
    until(lambda: "warned" in lsf.output(number), "the signal")
    lsf.run("bkill", number)
    assert lsf.wait(number) == [["EXIT", "130", "1"]]


def test_status_99_requeues_a_job_with_its_number(lsf: Cluster, tmp_path: Path) -> None:
    script = f"#!/bin/bash\n#BSUB -n 1\n#BSUB -Q 99\necho $LSB_JOBID\n[ -e {tmp_path}/ran ] && exit 0\n"
    number = lsf.submit(script=f"{script}touch {tmp_path}/ran\nexit 99\n")
    assert lsf.wait(number) == [["DONE", "-", "2"]]
    assert lsf.output(number).split() == [number, number]


@pytest.mark.slow
def test_an_element_of_an_array_is_requeued_alone(lsf: Cluster, tmp_path: Path) -> None:
    """hpccoll.scheduler asks for it; brequeue kills, and so the script does not go on."""
    ask = f"{sys.executable} -P -c 'import os; from hpccoll import scheduler; scheduler.requeue(os.environ)'"
    script = f"#!/bin/bash\n#BSUB -J a[1-2]%1\n#BSUB -n 1\n[ -e {tmp_path}/ran ] && exit 0\ntouch {tmp_path}/ran\n"
    number = lsf.submit(script=f"{script}{ask}\nsleep 60\necho too late\n")
    assert lsf.wait(number) == [["DONE", "-", "2"], ["DONE", "-", "1"]], lsf.output(number)
    assert "too late" not in lsf.output(number)


@pytest.mark.parametrize(
    ("options", "found"), [(["-r"], ["DONE", "-", "2"]), pytest.param([], ["EXIT", "130", "1"], marks=pytest.mark.slow)]
)
def test_the_loss_of_a_host(lsf: Cluster, options: list[str], found: list[str]) -> None:
    """`bsub -r`: the job runs again, with its number, and LSB_RESTART says so."""
    number = lsf.submit(*options, "-n", 2, "-R", "span[ptile=1]", "echo up; [ $LSB_RESTART ] || sleep 60")
    until(lambda: "up" in lsf.output(number), "the script")
    lsf.run("crash", "a01n02")
    assert lsf.wait(number) == [found], lsf.output(number)


def test_a_job_that_is_not_there(lsf: Cluster) -> None:
    """`bjobs 123`: IBM, LSB_BJOBS_CONSISTENT_EXIT_CODE."""
    assert lsf.run("bjobs", "-noheader", "-o", "stat", "123456", check=False) == (255, "Job <123456> is not found\n")
