# SPDX-License-Identifier: Apache-2.0
"""Elastic jobs of real processes: what is killed, stopped, added, given back, and how they end."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jobs
import numpy as np
import pytest

THREE = ("-np", "3", "--min-np", "2", "--host-failures", "100")


def is_gone(folder: Path, deed: str) -> bool:
    """Whether the process that did this is no more."""
    (file,) = folder.glob(f"{deed}-*")
    return not Path(f"/proc/{file.name.removeprefix(f'{deed}-')}").exists()


def test_a_killed_rank_is_replaced(tmp_path: Path) -> None:
    """Rank 0 is killed between the operation of a step and its commit.

    The new rank calls init() early, as Horovod's programs do, and prepares until the others have made steps without it.
    """
    plan = [[7, 0, "after", "SIGKILL", 0], [10, 0, "two", "mark", 0], [12, -1, "before", "reach", 3]]
    ran = jobs.run(tmp_path, plan, *THREE, words=("early",))
    jobs.check(ran)
    assert ran.sizes == [3, 2, 3], ran.output
    assert "rank 0 (host localhost, slot 0) was lost" in ran.output and "ending the job" not in ran.output
    assert is_gone(tmp_path, "SIGKILL")
    assert json.loads((tmp_path / "early").read_text()) == [2, 3, 0, 1.0], "the last of three, and its sum is its own"
    assert ran.output.count("It comes in when it calls elastic.run()") == 1, ran.output


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1, 2])
@pytest.mark.parametrize("place", ["before", "after"])
def test_any_rank_at_any_place(tmp_path: Path, rank: int, place: str) -> None:
    ran = jobs.run(tmp_path, [[9, rank, place, "SIGKILL", 0]], *THREE)
    jobs.check(ran)


@pytest.mark.slow
def test_a_stopped_rank_is_killed_and_replaced(tmp_path: Path) -> None:
    plan = [[5, 1, "before", "SIGSTOP", 0], [9, -1, "before", "reach", 3]]
    ran = jobs.run(tmp_path, plan, *THREE, HPCCOLL_PEER_TIMEOUT="2")
    jobs.check(ran)
    assert "it has been stopped (state T)" in ran.output
    assert is_gone(tmp_path, "SIGSTOP")


@pytest.mark.slow
def test_a_full_disk_under_stderr_ends_no_job(tmp_path: Path) -> None:
    """The launcher and rank 0 print lines at the start, and all of them after the loss."""
    with Path("/dev/full").open("w") as full:
        ran = jobs.run(tmp_path, [[6, 1, "before", "SIGKILL", 0]], *THREE, stderr=full)
    jobs.check(ran)


@pytest.mark.slow
def test_a_stopped_rank_and_another_loss_do_not_wait_for_a_straggler(tmp_path: Path) -> None:
    """The agent of its host is its parent, and sees that it is stopped; no rank that is left can tell."""
    plan = [[5, 1, "before", "SIGSTOP", 0], [5, 2, "before", "SIGKILL", 0], [9, -1, "before", "reach", 3]]
    ran = jobs.run(tmp_path, plan, *THREE[:2], "--min-np", "1", "--host-failures", "100", HPCCOLL_PEER_TIMEOUT="2")
    jobs.check(ran)
    assert "it has been stopped (state T)" in ran.output and "waiting for rank" not in ran.output, ran.output


@pytest.mark.slow
def test_when_all_ranks_are_stopped_the_launcher_says_what_continues_them(tmp_path: Path) -> None:
    program = "import os, signal, hpccoll; hpccoll.init(); os.kill(os.getpid(), signal.SIGSTOP); hpccoll.barrier()"
    command = [
        sys.executable,
        "-P",
        "-m",
        "hpccoll",
        "run",
        "--timeout=60",
        *THREE,
        sys.executable,
        "-P",
        "-c",
        program,
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as job:
        assert job.stderr is not None
        line = next(line for line in job.stderr if "stopped" in line)
        assert "ranks 0-2 are stopped (SIGSTOP, state T); to continue, on host localhost: kill -CONT" in line
        subprocess.run(line.partition("localhost: ")[2], shell=True, check=True)
        assert job.wait(60) == 0, job.stderr.read()


@pytest.mark.slow
def test_three_losses_and_two_joins(tmp_path: Path) -> None:
    plan = [
        [4, 1, "before", "SIGKILL", 0], [6, -1, "before", "reach", 3], [8, 2, "after", "SIGKILL", 0],
        [10, -1, "before", "reach", 3], [14, 0, "before", "SIGKILL", 0],
    ]  # fmt: skip
    ran = jobs.run(tmp_path, plan, *THREE)
    jobs.check(ran)
    assert ran.sizes[:5] == [3, 2, 3, 2, 3] and 2 in ran.sizes[4:], ran.output


@pytest.mark.slow
def test_a_second_loss_while_the_first_is_mended(tmp_path: Path) -> None:
    plan = [[6, 2, "before", "SIGKILL", 0], [6, 0, "sync", "SIGKILL", 0], [20, -1, "before", "reach", 4]]
    ran = jobs.run(tmp_path, plan, "-np", "4", "--min-np", "1", "--host-failures", "100")
    jobs.check(ran)


def discovery(folder: Path, hosts: str) -> tuple[str, ...]:
    (folder / "hosts").write_text(hosts)
    return ("--host-discovery-script", f"cat {folder}/hosts")


@pytest.mark.slow
def test_ranks_come_and_go_as_the_script_says(tmp_path: Path) -> None:
    plan = [
        [3, 0, "after", "hosts", "localhost:3"],
        [5, -1, "before", "reach", 3],
        [8, 0, "after", "hosts", "localhost:2"],
        [9, -1, "before", "fall", 2],
    ]
    ran = jobs.run(tmp_path, plan, "--min-np", "1", "-np", "2", *discovery(tmp_path, "localhost:2"))
    jobs.check(ran)
    assert ran.sizes == [2, 3, 2] and "its slot is to be given back" in ran.output, ran.output


@pytest.mark.slow
def test_a_host_takes_over_from_another_one(tmp_path: Path) -> None:
    plan = [
        [3, 0, "after", "hosts", "127.0.0.1:2"],
        [4, -1, "before", "reach", 3],
        [5, -1, "before", "fall", 2],
    ]
    ran = jobs.run(tmp_path, plan, "--min-np", "1", "-np", "2", *discovery(tmp_path, "localhost:2"))
    jobs.check(ran)
    assert ran.size == 2 and ran.output.count("its slot is to be given back") == 2, ran.output


@pytest.mark.slow
def test_a_rank_that_gets_sigterm_leaves_after_its_step(tmp_path: Path) -> None:
    ran = jobs.run(tmp_path, [[6, 1, "before", "SIGTERM", 0]], *THREE)
    jobs.check(ran)
    assert ran.sizes == [3, 2] and "was lost" not in ran.output, ran.output


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plan", "arguments", "words"),
    [
        ([[3, 1, "before", "exit", 3]], ("--min-np", "2", "--host-failures", "1"), "all hosts are excluded"),
        ([[3, 1, "before", "SIGKILL", 0]], ("--min-np", "1", "--reset-limit", "0"), "--reset-limit is 0"),
        ([[3, -1, "before", "always raise", 0]], ("--min-np", "1"), "the job ends: all "),
    ],
)
def test_a_job_that_cannot_go_on_says_why(
    tmp_path: Path, plan: list[Any], arguments: tuple[str, ...], words: str
) -> None:
    ran = jobs.run(tmp_path, plan, "-np", "2", *arguments)
    assert ran.status == 1 and words in ran.output, ran.output


@pytest.mark.slow
def test_an_excluded_host_comes_back_after_its_cooldown(tmp_path: Path) -> None:
    """The host of the launcher has two names, so that one of them can be excluded."""
    plan = [[4, 1, "before", "SIGKILL", 0], [9, -1, "before", "reach", 2]]
    once = ("--host-failures", "1", "--blacklist-cooldown-range", "2", "8")
    ran = jobs.run(tmp_path, plan, "-np", "2", "--min-np", "1", "-H", "localhost:1,127.0.0.1:1", *once)
    jobs.check(ran)
    assert ran.sizes == [2, 1, 2] and "host 127.0.0.1 is excluded for 2 s" in ran.output, ran.output


@pytest.mark.slow
def test_the_healthy_ranks_of_an_excluded_host_end_with_it_if_asked_for(tmp_path: Path) -> None:
    where = ("-np", "3", "--min-np", "1", "-H", "localhost:1,127.0.0.1:2", "--exclude-host-on-failure")
    ran = jobs.run(tmp_path, [[4, 1, "before", "SIGKILL", 0]], *where)
    jobs.check(ran)
    assert ran.sizes == [3, 1] and "host 127.0.0.1 is excluded for the rest of the job" in ran.output, ran.output


@pytest.mark.slow
@pytest.mark.parametrize(("deed", "named"), [("raise", "ValueError: as the plan says"), ("sys.exit", "SystemExit: 3")])
def test_an_exception_on_one_rank_is_a_loss_of_that_rank(deed: str, named: str, tmp_path: Path) -> None:
    ran = jobs.run(tmp_path, [[5, 1, "before", deed, 3]], *THREE)
    jobs.check(ran)
    assert ran.sizes[:2] == [3, 2] and f"rank 1 has raised {named}" in ran.output, ran.output


@pytest.mark.slow
def test_too_few_ranks_for_too_long(tmp_path: Path) -> None:
    plan = [[3, 0, "before", "hosts", "localhost:1"], [5, -1, "before", "fall", 1]]
    arguments = ("-np", "2", "--min-np", "2", "--elastic-timeout", "3", *discovery(tmp_path, "localhost:2"))
    ran = jobs.run(tmp_path, plan, *arguments)
    assert ran.status == 1 and "no more had come after 3 s (--elastic-timeout)" in ran.output, ran.output


@pytest.mark.slow
def test_the_next_job_goes_on_from_the_file(tmp_path: Path) -> None:
    plan = [[9, -1, "before", "always raise", 0]]
    first = jobs.run(tmp_path, plan, "-np", "2", "--min-np", "2", words=("durable",))
    assert first.status == 1, first.output
    second = jobs.run(tmp_path, [], "-np", "3", "--min-np", "2", words=("durable",))
    jobs.check(second)
    assert second.sizes == [2, 3], second.output


@pytest.mark.slow
def test_sharded_state_goes_back_to_the_commit_that_all_have(tmp_path: Path) -> None:
    """Rank 0 has made a commit that rank 1 has not: it goes back. The lost block comes from a neighbour's copy."""
    program = [sys.executable, "-P", str(jobs.HERE / "sharded.py"), str(tmp_path)]
    done = jobs.launch("-np", "3", "--min-np", "2", *program)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [file.name for file in tmp_path.glob("rolled-back-*")] == ["rolled-back-0"], done.stderr
    whole = np.arange(101)
    for _ in range(40):
        whole = (whole * 3 + whole.sum() + np.arange(101)) % 1_000_003
    assert (np.load(tmp_path / "whole.npy") == whole).all()
    assert "rank 2 (host localhost, slot 2) was lost" in done.stderr


def random_plan(seed: int) -> list[list[Any]]:
    draw = random.Random(seed)
    plan = []
    for _ in range(draw.randint(1, 5)):
        deed = draw.choice(("SIGKILL", "SIGKILL", "pause", "SIGTERM", "exit"))
        place = draw.choice(("before", "after", "sync"))
        plan.append([draw.randint(1, 25), draw.randint(0, 3), place, deed, 1])
    return plan


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_random_schedules(tmp_path: Path) -> None:
    """No job hangs; each one commits every sample once, or ends with a reason."""
    for seed in range(int(os.environ.get("ELASTIC_SCHEDULES", "25"))):
        folder = tmp_path / str(seed)
        folder.mkdir()
        ran = jobs.run(
            folder, random_plan(seed), "-np", "3", "--min-np", "1", "--max-np", "4", "-H", "localhost:2,127.0.0.1:2",
            "--host-failures", "100", HPCCOLL_PEER_TIMEOUT="1",
        )  # fmt: skip
        if ran.status:
            assert "the job ends: " in ran.output and "--timeout" not in ran.output, (seed, ran.output)
        else:
            jobs.check(ran)


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["run", "horovodrun"])
def test_a_script_for_horovod_with_one_import_changed(tmp_path: Path, launcher: str) -> None:
    pytest.importorskip("torch")
    source = (jobs.HERE / "horovod_elastic.py").read_text()
    assert source.count("horovod.torch") == 1
    program, victim = tmp_path / "train.py", tmp_path / "victim"
    program.write_text(source.replace("import horovod.torch as hvd", "import hpccoll.torch as hvd"))
    launch = [sys.executable, "-P", "-m", "hpccoll", launcher, "-np", "3", "--min-np", "2"]
    command = [*launch, "python", "-P", program, victim]
    environment = {**os.environ, "HPCCOLL_TRACE_DIR": "none"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0 and "each sample; " in done.stdout, done.stdout + done.stderr
    assert victim.exists() and "rank 0 (host localhost, slot 0) was lost" in done.stderr


CHECKS = """
import numpy as np, hpccoll
from hpccoll import elastic
state = elastic.ArrayState(x=np.zeros(4))

@elastic.run
def train(state):
    world, sent = hpccoll.world(), []
    for commits in (False, True, False):
        before = world.stats()
        for _ in range(50):
            state.x += hpccoll.allreduce(np.ones(4), name="x")
            if commits:
                state.commit()
                state.check_host_updates()
        after = world.stats()
        sent.append([after[key] - before[key] for key in ("messages_up", "messages_down", "requests", "entries")])
    hpccoll.barrier()  # no rank ends before another one has counted
    assert sent[0] == sent[1] == sent[2], sent
    print("no message more")

train(state)
"""


@pytest.mark.slow
def test_a_commit_costs_no_message() -> None:
    done = jobs.launch("-np", "2", "--min-np", "2", sys.executable, "-P", "-c", CHECKS)
    assert done.returncode == 0 and done.stdout.count("no message more") == 2, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("number", "limit"), [(signal.SIGINT, 30), (signal.SIGTERM, 30), (signal.SIGQUIT, 30)])
def test_the_launcher_ends_its_ranks(tmp_path: Path, number: int, limit: float) -> None:
    program = (
        "import os, pathlib, time, hpccoll; hpccoll.init(); pathlib.Path(str(os.getpid())).touch(); time.sleep(99)"
    )
    command = [sys.executable, "-P", "-m", "hpccoll", "run", "-np", "2", "--min-np", "1", sys.executable, "-P", "-c"]
    with subprocess.Popen([*command, program], cwd=tmp_path, stderr=subprocess.PIPE, text=True) as job:
        until = time.monotonic() + 60
        while len(list(tmp_path.glob("[0-9]*"))) < 2 and time.monotonic() < until:
            time.sleep(0.05)
        job.send_signal(number)
        assert job.wait(limit) == 128 + number
    pids = [file.name for file in tmp_path.glob("[0-9]*")]
    assert len(pids) == 2 and not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
