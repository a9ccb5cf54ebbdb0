# SPDX-License-Identifier: Apache-2.0
"""The file is a valid document at all times, and shows what happened to each request, in that order."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import hpccoll
from hpccoll import testing
from hpccoll.observe import timeline
from hpccoll.observe.phases import Phases
from hpccoll.rendezvous import ThreadGroup, ThreadRendezvous

WORDS = ["enqueue", "negotiate", "fuse", "reduce", "complete"]


def rows_of(path):
    """Read the events of each row, by its name and in order, and check what holds for every timeline."""
    document = json.loads(path.read_text())
    names, rows, open_at = {}, defaultdict(list), {}
    for event in document["traceEvents"]:
        key = event["pid"], event["tid"]
        if event["ph"] == "M":
            names[key] = event["args"]["name"]
            continue
        assert event["ts"] >= open_at.get((key, "last"), 0)
        open_at[key, "last"] = event["ts"]
        if event["ph"] == "E":
            assert open_at.pop(key)  # closes what was open on this row
        elif event["ph"] == "B":
            assert key not in open_at
            open_at[key] = event["name"]
        rows[names[key]].append(event)
    return rows


def words(events):
    return [event["name"] for event in events if "name" in event]


def traced(tmp_path, layout, program, *, rank="", **options):
    """Run `program` on threads with a timeline; the rows of rank 0's (or every rank's) file."""
    path = tmp_path / f"timeline{rank}.json"
    ranks = sum(map(int, layout.split("+")))

    def whole(world):
        timeline.start(world, path, **options)
        program(world)
        timeline.stop(world)

    testing.make_and_run(ranks, whole, nodes=layout if "+" in layout else "")
    if rank:
        return [rows_of(tmp_path / f"timeline{r}.json") for r in range(ranks)]
    return rows_of(path)


@pytest.mark.parametrize("layout", ["1", "2", "2+1"])
def test_each_request_goes_through_the_five_words(tmp_path, layout):
    def program(world):
        for _ in range(3):
            handles = [world.allreduce_async(np.ones(100 * (i + 1), np.float32), name=f"t{i}") for i in range(5)]
            for handle in handles:
                handle.wait()

    rows = traced(tmp_path, layout, program)
    for i in range(5):
        assert words(rows[f"t{i}"]) == WORDS * 3
        first = rows[f"t{i}"][0]["args"]
        assert first == {"operation": "allreduce", "bytes": 400 * (i + 1)}
    batches = [event for event in rows["batches"] if event["ph"] == "B"]
    assert {event["name"] for event in batches} == {"allreduce"}
    assert sum(event["args"]["bytes"] for event in batches) == 3 * 400 * 15
    assert sum(event["args"]["requests"] for event in batches) == 15
    assert [event["args"]["batch"] for event in batches] == sorted({e["args"]["batch"] for e in batches})


def test_one_file_a_rank(tmp_path):
    rows = traced(tmp_path, "2+1", lambda world: world.allreduce(1, name="x"), rank="{rank}")
    assert [words(r["x"]) for r in rows] == [WORDS] * 3
    pids = {json.loads((tmp_path / f"timeline{r}.json").read_text())["traceEvents"][0]["pid"] for r in range(3)}
    assert pids == {0, 1, 2}


def test_only_rank_0_writes_one_file(tmp_path):
    traced(tmp_path, "3", lambda world: world.barrier())
    assert [file.name for file in tmp_path.iterdir()] == ["timeline.json"]


def test_mismatches_joins_and_messages_are_shown(tmp_path):
    """A mismatch was never fused; a join and a message are rows, too; a set's rows carry its number."""

    def program(world):
        with pytest.raises(hpccoll.MismatchError):
            world.allreduce(np.ones(2 + world.rank), name="unequal")
        half = world.subset([0, 1])
        half.allreduce(1, name="of a set")
        world.barrier(name="no bytes")
        world.join()

    rows = traced(tmp_path, "2", program)
    assert words(rows["unequal"]) == ["enqueue", "negotiate", "complete"]
    assert rows["unequal"][-1]["args"] == {"status": "MISMATCH"}
    assert words(rows["of a set (set 1)"]) == WORDS
    assert words(rows["batches (set 1)"]) == ["allreduce"]
    assert words(rows["no bytes"]) == ["enqueue", "negotiate", "complete"]  # agreed, and that was all
    assert words(rows["join"])[-1] == "complete"


def test_groups_of_several_types_and_long_names(tmp_path):
    """A group is one request and a batch a type. Names that differ at the end only have rows of their own."""
    long = "DistributedOptimizer.Allreduce.module.encoder.layers.11.self_attention.output"

    def program(world):
        x = [np.ones(3, np.float32), np.ones(3, np.float64)]
        world.allreduce(x, name="mixed")
        handles = [world.allreduce_async(np.ones(3), name=long + end) for end in (".w", ".b")]
        for handle in handles:
            handle.wait()

    rows = traced(tmp_path, "2", program)
    assert words(rows["mixed"]) == WORDS
    found = sorted(name for name in rows if name.startswith("~"))
    assert [name[-2:] for name in found] == [".b", ".w"]
    assert all(len(name) == 63 and words(rows[name]) == WORDS for name in found)


@pytest.mark.parametrize("layout", ["2", "1+1"])
def test_plans_have_no_rows(tmp_path, layout):
    """A start that needs no driver leaves no record: rows of the others would tell half of it."""

    def program(world):
        plan = world.allreduce_init(np.ones(100_000))
        for _ in range(3):
            plan.start()
            plan.wait()

    assert not [name for name in traced(tmp_path, layout, program) if name.startswith("plan")]


def test_control_messages_are_marked_on_demand(tmp_path):
    def program(world):
        world.barrier()

    assert "control messages" not in traced(tmp_path, "2", program)
    marks = traced(tmp_path, "2", program, mark_cycles=True)["control messages"]
    assert {"send 1", "receive 1"} <= set(words(marks))


def test_a_full_disk_leaves_a_document(tmp_path):
    """A limit of the process's files stands for the disk: as there, a part of the last write fits."""
    program = """
import resource, sys, time, numpy as np, hpccoll
from hpccoll.observe import timeline
hpccoll.init(verbose=0)
resource.setrlimit(resource.RLIMIT_FSIZE, (30_001, 30_001))
timeline.start(hpccoll.world(), sys.argv[1])
writer = hpccoll.world().base.timeline._thread
while writer.is_alive():
    hpccoll.allreduce(np.ones(10), name="x")
hpccoll.shutdown()
"""
    path = tmp_path / "timeline.json"
    done = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, timeout=100)
    assert "ends here: File too large" in done.stderr and done.returncode == 0
    assert len(rows_of(path)["x"]) > 50 and path.stat().st_size <= 30_001


def test_gaps_are_said_and_close_what_was_open():
    record = {"bytes": 8, "ticket": 7, "batch": 0, "set": 0, "peer": 0, "status": 0, "count": 1, "name": "t", "plan": 0}
    make = lambda kind, ts: record | {"kind": kind, "time": ts * 1000, "operation": "allreduce"}  # noqa: E731
    phases = Phases(0, 1, False)
    before = phases.events([make("enqueue", 1), make("fuse", 2)], 0)
    assert words(before) == ["process_name", "thread_name", "enqueue", "negotiate", "fuse"]
    after = phases.events([make("end", 5), make("complete", 6), make("enqueue", 7)], 40)
    gap = next(event for event in after if "overwritten" in event.get("name", ""))
    assert gap["name"].startswith("40 records were overwritten")
    assert after[0]["ph"] == "E"
    assert words(after)[-2:] == ["enqueue", "negotiate"]
    assert sum(e["ph"] == "B" for e in before + after) == sum(e["ph"] == "E" for e in before + after) + 1


def test_a_reader_that_is_too_slow_is_told(tmp_path, monkeypatch):
    """More records than the ring holds between two looks: a valid document that says how many it lacks."""
    monkeypatch.setattr(timeline, "EVERY", 60.0)

    def program(world):
        for _ in range(4000):
            world.allreduce(1, name="x")

    path = tmp_path / "timeline.json"
    rows = traced(tmp_path, "1", program)
    assert len(rows["x"]) > 1000
    lost = [e for e in json.loads(path.read_text())["traceEvents"] if "overwritten" in e.get("name", "")]
    assert len(lost) == 1


def test_twice_and_nowhere(tmp_path):
    with hpccoll.World(verbose=0) as world:
        timeline.stop(world)
        with pytest.raises(hpccoll.InvalidArgumentError, match=r"no timeline can be written to .*nowhere"):
            timeline.start(world, tmp_path / "nowhere" / "t.json")
        timeline.start(world, tmp_path / "t.json")
        with pytest.raises(ValueError, match="stop it first"):
            timeline.start(world, tmp_path / "u.json")
        timeline.stop(world)
        timeline.start(world, tmp_path / "u.json")
    for name in "tu":  # the end of the World ended the second one
        rows_of(tmp_path / f"{name}.json")


def test_the_knob(tmp_path):
    testing.make_and_run(
        2,
        lambda world: world.allreduce(1, name="b"),
        timeline=str(tmp_path / "of-{rank}.json"),
    )
    for rank in range(2):
        assert words(rows_of(tmp_path / f"of-{rank}.json")["b"]) == WORDS
    with pytest.raises(hpccoll.StartError, match="no timeline can be written"):
        hpccoll.World(verbose=0, timeline=str(tmp_path / "no" / "where.json"))


def test_the_knob_of_one_rank(tmp_path):
    """A program may set the variable on rank 0, which writes the file."""
    group = ThreadGroup(3)

    def program(rank, path):
        knobs = {"timeline": str(path)} if rank != 2 else {}
        with hpccoll.World(rendezvous=ThreadRendezvous(group, rank), start_timeout=10, verbose=0, **knobs) as world:
            world.allreduce(1, name="b")

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(program, range(3), [tmp_path / "of-{rank}.json"] * 3))
        assert [words(rows_of(tmp_path / f"of-{rank}.json")["b"]) for rank in range(2)] == [WORDS, WORDS]
        for made in [pool.submit(program, rank, tmp_path / "no" / "{rank}.json") for rank in range(3)]:
            with pytest.raises(hpccoll.StartError, match=r"ranks? 0.*no timeline can be written"):
                made.result()


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 5))])
def test_a_document_after_kill_9(tmp_path, seed):
    """A program is killed at any time: the file has everything up to shortly before, and the open phases."""
    path = tmp_path / "t.json"
    script = (
        "import time, numpy as np, hpccoll\n"
        "hpccoll.init(verbose=0)\n"
        "print('on its way', flush=True)\n"
        "while True:\n"
        "    hs = [hpccoll.allreduce_async(np.ones(1000), name=f't{i}') for i in range(50)]\n"
        "    for h in hs: h.wait()\n"
        "    time.sleep(0.005)\n"  # as if it computed something
    )
    environment = {**os.environ, "HPCCOLL_TIMELINE": str(path)}
    with subprocess.Popen([sys.executable, "-c", script], env=environment, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        deadline = time.monotonic() + 90
        while path.stat().st_size < 50_000 * (1 + seed) and time.monotonic() < deadline:
            time.sleep(0.001 * np.random.default_rng(seed).random())
        process.send_signal(signal.SIGKILL)
    text = path.read_text()
    if not text.endswith("]}\n"):  # killed in the middle of a write, which only lacks its end, as timeline.py says
        path.write_text(text.rpartition(",\n")[0] + "]}")
    rows = rows_of(path)
    assert words(rows["t0"])[:5] == WORDS
    assert words(rows["batches"])
