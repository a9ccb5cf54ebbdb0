# SPDX-License-Identifier: Apache-2.0
"""The simulator against what is known without it: messages by count, and times by the model where nothing collides."""

import json
import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from hpccoll.tools.model import agreement, chunks, messages, predict
from hpccoll.tools.model.predict import Layout, Parameters

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "benchmarks" / "simulator"
BATCH = 16 << 20
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def program(needs: Callable[..., None], tmp_path_factory: pytest.TempPathFactory) -> Path:
    needs("smpirun", "g++", "make")
    out = tmp_path_factory.mktemp("simulator")
    subprocess.run(["make", "-s", "-C", FOLDER, "OPTIMIZE=-O0", f"OUT={out}"], check=True, timeout=500)
    return out / "simulate"


def simulate(program: Path, **settings: object) -> dict[str, float]:
    words = [f"{name}={value}" for name, value in settings.items()]
    done = subprocess.run([program, *words], capture_output=True, text=True, check=True, timeout=200)
    found: dict[str, float] = json.loads(done.stdout)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [2, 3, 4, 6, 8, 16])
def test_an_allreduce_takes_what_the_model_says(program: Path, nodes: int) -> None:
    """Below one switch nothing collides. The model leaves out that a round waits for the driver's next pass."""
    longest = chunks.cut(1 << 30, "float32", "float32", 6, nodes=nodes)
    p = Parameters(hop=0, edge=0, batch=0, touch=1 / 50e9, alpha=2 * 2e-7 + 2 * 3e-7, overhead=2e-7, beta=1 / 23e9)
    for nbytes, most in ((6 * 4 * longest.shard, 1.1), (BATCH, 1.3)):
        cut = chunks.cut(nbytes // 4, "float32", "float32", 6, nodes=nodes)
        turns = {"turns": 1, "slots": cut.slots} if cut.turns else {}
        found = simulate(program, nodes=nodes, bytes=nbytes, shard=cut.shard, depth=cut.depth, **turns)
        count = nbytes // 4 // (1 if turns else 6)
        sent = 0
        for chunk in range(-(-count // cut.shard)):
            length = min(cut.shard, count - chunk * cut.shard)
            chosen = messages.choose(nodes, length, "float32")
            several = [messages.rounds(chosen, nodes, me, length) for me in range(nodes)]
            sent += sum(e > 0 for rounds in several for one in rounds for _, e in one.sends)
        assert found["messages"] == sent
        loads = messages.load(chosen, nodes, length)
        p = replace(p, beta=1 / 23e9 / loads.incast)  # flows share the simulated network without loss
        expected = predict.reduce_batch(p, Layout(nodes, 6), "float32", nbytes // 4)
        assert 1 / 1.1 < found["seconds"] / expected < most, (nbytes, found["seconds"], expected)


@pytest.mark.slow
def test_an_agreement(program: Path) -> None:
    """The messages are those of the real engines in one process; one late rank costs one way up and down."""
    for nodes in (1, 4, 40):
        found = simulate(program, what="agreement", nodes=nodes)
        assert found["messages"] == agreement.messages(nodes, 6)
        assert 1e-6 < found["seconds"] < 1e-3
    late = simulate(program, what="agreement", nodes=40, late=0.01)
    assert late["last_raise"] == pytest.approx(0.01) and late["seconds"] < found["seconds"]


@pytest.mark.slow
def test_a_disturbed_network_takes_longer(program: Path) -> None:
    cut = chunks.cut(1 << 30, "float32", "float32", 6)
    plain = {"nodes": 20, "bytes": 4 << 20, "shard": cut.shard, "depth": cut.depth}
    usual = simulate(program, **plain)["seconds"]
    assert simulate(program, **plain)["seconds"] == usual
    for more in ({"slow_link": 3, "slowness": 4}, {"slow_node": 3, "slowness": 3}, {"depth": 1}, {"noise": 0.5}):
        assert simulate(program, **plain | more)["seconds"] > 1.05 * usual, more
    one_rail = chunks.cut(1 << 30, "float32", "float32", 6, rails=1)
    slow = simulate(program, **plain | {"rails": 1, "shard": one_rail.shard, "depth": one_rail.depth})["seconds"]
    assert slow > 2 * 19 / 20 * (4 << 20) / 11.5e9
    frontier = simulate(program, machine="frontier", nodes=20, bytes=4 << 20, rails=8, shard=16384, depth=4)
    assert frontier["ranks"] == 160


@pytest.mark.slow
def test_stages(program: Path) -> None:
    """Their product is the nodes; FP16 saves its bytes."""
    plain = {"nodes": 12, "bytes": 4 << 20, "shard": 21856, "depth": 4}
    found = simulate(program, stages="4,3", **plain)
    assert found["messages"] == 12 * 2 * (3 + 2) * found["chunks"]
    assert simulate(program, stages="4,3", wire="fp16", **plain)["seconds"] < found["seconds"]
    words = [f"{name}={value}" for name, value in (plain | {"stages": "3,5"}).items()]
    done = subprocess.run([program, *words], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode != 0 and "their product is 15, not nodes=12" in done.stderr


@pytest.mark.slow
def test_a_broadcast(program: Path) -> None:
    """Scattered in stages of 4, each member but the root gets its parts; the model chooses what takes less time."""
    plain = {
        "what": "broadcast",
        "nodes": 64,
        "per_node": 1,
        "rails": 1,
        "bytes": 256 << 10,
        "shard": 65536,
        "depth": 8,
    }
    found = {form: simulate(program, **plain | {"form": form}) for form in ("tree", "scattered", "auto")}
    assert found["tree"]["messages"] == 63
    held = [1, 4, 16]  # members that hold their group's block before a stage
    assert found["scattered"]["messages"] == sum(3 * n for n in held) + sum(3 * (64 - n) for n in held)
    link = plain["bytes"] / 11.5e9  # a root sends the data twice, but for its own part
    assert 2 * 63 / 64 * link < found["scattered"]["seconds"] < 0.5 * found["tree"]["seconds"]
    assert found["auto"] == found["scattered"]


@pytest.mark.slow
def test_a_reduce(program: Path) -> None:
    """In stages of 4 each node exchanges its parts, and only the root's groups gather them; the model chooses that."""
    plain = {"what": "reduce", "nodes": 64, "per_node": 1, "rails": 1, "bytes": 256 << 10, "shard": 65536, "depth": 8}
    found = {form: simulate(program, **plain | {"form": form}) for form in ("tree", "stages", "auto")}
    assert found["tree"]["messages"] == 63
    gathered = [16, 4, 1]  # groups whose blocks go towards the root in a stage, the farthest stage first
    assert found["stages"]["messages"] == 64 * 3 * 3 + sum(3 * n for n in gathered)
    link = plain["bytes"] / 11.5e9  # a root receives the data twice, but for its own part
    assert 2 * 63 / 64 * link < found["stages"]["seconds"] < 0.5 * found["tree"]["seconds"]
    assert found["auto"] == found["stages"]
    one = plain | {"per_node": 6, "rails": 6, "bytes": 512 << 10, "shard": 21856, "depth": 16, "slots": 16, "turns": 1}
    assert simulate(program, **one)["seconds"] > 2 * (512 << 10) / 23e9  # of the ranks of a node, in turns


@pytest.mark.slow
def test_what_the_page_shows(program: Path) -> None:
    """Simulations that take little time give what is recorded, and the tables are those of the records.

    Each is deterministic, so a change of the code below ext that changes messages or their order is found here.
    """
    command = [sys.executable, str(FOLDER), "page", "--small", "--build", str(program.parent)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}\nrun: python benchmarks/simulator page --again 64"
    repeated = re.search(r"(\d+) runs repeated, 0 differ", done.stdout)
    assert repeated and int(repeated[1]) > 20, done.stdout


def test_all_runs_are_recorded_and_a_curve_is_of_one_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each point is a run of the machine that the curve names, and none is below the bound."""
    monkeypatch.syspath_prepend(FOLDER)
    study, plan = (runpy.run_path(str(FOLDER / f"{name}.py")) for name in ("study", "plan"))
    results = [json.loads(line) for line in (ROOT / "benchmarks/results/simulator.jsonl").read_text().splitlines()]
    assert sorted(map(str, plan["runs"]())) == sorted(str(run["asked"]) for run in results)
    for curves in (study["allreduce_curves"](results), study["bound_curves"](results)):
        for label, points in curves.items():
            of_machine = {r["ranks"] for r in results if r["asked"]["machine"] == label.split(",")[0].lower()}
            assert len(points) > 4 and {ranks for ranks, _ in points} <= of_machine, label
    below = study["bound_curves"](results)
    for label, points in study["allreduce_curves"](results).items():
        assert all(time > least for (_, time), (_, least) in zip(points, below[label], strict=True)), label
