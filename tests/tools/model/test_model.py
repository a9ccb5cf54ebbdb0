# SPDX-License-Identifier: Apache-2.0
"""The model: what it counts is what the C code does, and a fit finds the parameters that made the times."""

import ctypes
import itertools
import json
import re
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hpccoll.__main__ import main
from hpccoll.tools.bench import files, training
from hpccoll.tools.bench import startup as measured_start
from hpccoll.tools.bench.results import Case, Key, Results, ResultsError
from hpccoll.tools.model import agreement, chunks, fit, messages, predict, startup
from hpccoll.tools.model.predict import Layout, Parameters

ROOT = Path(__file__).resolve().parents[3]
FITS = 40
"""Fits to made times, which give 7 intervals of parameters and 4 of predictions each."""
TRUE = Parameters(hop=2e-6, edge=2e-5, batch=4e-6, touch=2e-10, alpha=1.5e-5, overhead=3e-6, beta=8.5e-9)


@pytest.fixture(scope="module")
def choose_c(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    library = tmp_path_factory.mktemp("choose") / "choose.so"
    sources = [ROOT / "ext/core/status.c", *(ROOT / f"ext/transport/net/{name}.c" for name in ("choose", "radices"))]
    flags = ["-std=c11", "-D_GNU_SOURCE", "-O0", "-w", "-shared", "-fPIC", f"-I{ROOT / 'ext'}"]
    subprocess.run(["gcc", *flags, *sources, "-o", library], check=True, timeout=100)
    return ctypes.CDLL(str(library))


def test_parts_are_even_and_those_of_the_c_code(choose_c: ctypes.CDLL) -> None:
    """The largest part, which the busiest link carries, is at most 7 % above the mean, or one element."""
    choose_c.hc__even_part.restype = ctypes.c_int64
    for n in (1, 2, 3, 7, 64, 1000, 4608):
        for count in (0, 1, n - 1, n, n + 1, 1000, 21_856, 1024 * n - 1, 1024 * n, 1024 * n + 1, 10_000_019):
            begins = [messages.even_part(count, n, i) for i in range(n + 1)]
            sizes = [after - before for before, after in itertools.pairwise(begins)]
            assert (begins[0], begins[-1], min(sizes) >= 0) == (0, count, True)
            assert max(sizes) <= max(count / n + 1, 1.07 * count / n), (n, count)
            some = {0, 1, n // 2, n - 1, n} & set(range(n + 1))
            for i in some:
                assert choose_c.hc__even_part(ctypes.c_int64(count), n, i) == begins[i]


JOB = """
import json
import numpy as np
import hpccoll
hpccoll.init()
found = []
for latency, algorithm in ((20_000, "auto"), (1_000_000, "auto"), *((20_000, name) for name in
                           ("direct", "stages", "ring"))):
    world = hpccoll.World(algorithm=algorithm, latency_bytes=latency, verbose=0)
    for dtype, count in (("float32", 1), ("float32", 30000), ("float16", 30000), ("float32", 300000)):
        x = np.ones(count, dtype)
        for _ in range(2):
            world.allreduce(x, name="x")
        before = world.stats()
        world.allreduce(x, name="x")
        sent = {name: value - before[name] for name, value in world.stats().items()}
        mine = [sent[f"{what}_net"] for what in ("control_messages", "control_bytes")]
        mine += [sent["net_sent_messages"] - mine[0], sent["net_sent_bytes"] - mine[1]]
        found.append((latency, algorithm, dtype, count, hpccoll.allgather_object(mine)))
    world.shutdown()
if hpccoll.rank() == 0:
    print(json.dumps(found))
"""


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_messages_and_bytes_are_those_of_a_real_job() -> None:
    """Three nodes, so that a member is folded, of two ranks: two rails. A costly message sends all at once."""
    assert messages.choose(3, 15_000, "float32", latency_bytes=1_000_000).whole
    assert not messages.choose(3, 15_000, "float32").whole and messages.choose(3, 1, "float32", "stages").extra == 1
    command = [sys.executable, "-P", "-m", "hpccoll", "run", "-np", "6", "--nodes", "3", "--timeout", "150"]
    done = subprocess.run([*command, sys.executable, "-P", "-c", JOB], capture_output=True, text=True, timeout=190,
                          check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    for latency, algorithm, dtype, count, ranks in json.loads(done.stdout):
        sent = [[0, 0] for _ in range(6)]
        cut = chunks.cut(count, dtype, dtype, 2)
        for chunk in range(cut.chunks):
            length = min(cut.chunk, count - chunk * cut.chunk)
            shard = chunks.cut(length, dtype, dtype, 2).shard
            for rail, elements in enumerate((shard, length - shard)):
                chosen = messages.choose(3, elements, dtype, algorithm, latency)
                for node in range(3):
                    for one in messages.rounds(chosen, 3, node, elements):
                        moved = [n * messages.SIZES[chosen.dtype] for _, n in one.sends if n]
                        sent[2 * node + rail][0] += len(moved)
                        sent[2 * node + rail][1] += sum(moved)
        # control messages have a few bytes more on the net than they count themselves
        for rank, (_, _, counted, nbytes) in enumerate(ranks):
            assert counted == sent[rank][0], (algorithm, dtype, count, rank)
            assert 0 <= nbytes - sent[rank][1] <= 256, (algorithm, dtype, count, rank)


@pytest.mark.parametrize("latency", [1, 20_000, 10_000_000])
@pytest.mark.parametrize("algorithm", ["direct", "stages", "ring"])
def test_what_is_sent_is_received(algorithm: str, latency: int) -> None:
    for n, count in itertools.product((2, 3, 6, 7, 8, 31, 37), (1, 1000)):
        chosen = messages.choose(n, count, "float32", algorithm, latency)
        members = [messages.rounds(chosen, n, me, count) for me in range(n)]
        assert len({len(rounds) for rounds in members}) == 1
        for together in zip(*members, strict=True):
            sent = sorted((me, to, e) for me, one in enumerate(together) for to, e in one.sends)
            assert sent == sorted((of, me, e) for me, one in enumerate(together) for of, e in one.receives)


def test_nobody_does_the_work_of_two() -> None:
    """No member sends more than 2 (n - 1)/n of the data, where n has small factors; a seventh more where it has not."""
    for n, most in ((12, 1.0), (72, 1.0), (96, 1.0), (31, 1.15), (37, 1.15), (4608, 1.0), (4603, 1.15)):
        count = 1024 * n
        chosen = messages.choose(n, count, "float32", "stages")
        for me in (0, 1, chosen.radices[0], n // 2, n - 1):
            sent = sum(e for one in messages.rounds(chosen, n, me, count) for _, e in one.sends)
            assert sent <= 1.07 * most * 2 * (n - 1) / n * count, (n, me, str(chosen))


def test_float16_stays_narrow() -> None:
    """Unless the sums are to be exact, or one stage needs no partial sums."""
    narrow, exact = (messages.choose(4608, 1 << 20, "float16", exact=exact) for exact in (False, True))
    assert (narrow.dtype, exact.dtype) == ("float16", "float32") and narrow.seconds < 0.7 * exact.seconds
    assert messages.choose(4, 1 << 20, "float16", "direct", exact=True).dtype == "float16"


def test_the_tree() -> None:
    """The chains that the real engines have: tests/core/test_counts.py."""
    alone = agreement.path(1, 1)
    assert (alone.inside, alone.between, alone.further) == (0, 0, 0)
    small = agreement.path(2, 2)
    assert (small.inside, small.between, small.further) == (1, 1, 0)
    narrow = agreement.path(8, 6, fanout=1)
    assert (narrow.inside, narrow.between, narrow.further) == (5, 7, 0)
    assert (agreement.path(17, 1).between, agreement.path(17, 1).further) == (1, 15)
    many = agreement.path(4608, 6)
    assert many.between == 4 and 0 < many.further <= 4 * 15
    assert agreement.messages(4608, 6) == 55_294  # as `hpccoll bench control` counts it


def test_no_prediction_is_below_what_the_link_allows() -> None:
    for nodes in (2, 4, 16, 4608):
        for nbytes in (1 << 16, 1 << 20, 1 << 26):
            floor = 2 * (nodes - 1) / nodes * nbytes * TRUE.beta
            found = predict.allreduce(TRUE, Layout(nodes, 6), "float32", nbytes)
            assert found >= 0.99 * floor


@pytest.mark.timeout(200)
@pytest.mark.parametrize("ranks", [6, 960])
def test_a_start_receives_what_the_model_counts(ranks: int) -> None:
    """A real rank in a process of its own, among virtual ones. Settings take some bytes more or less."""
    found = measured_start.one(ranks - 1, ranks, traced=False)
    assert abs(found["init"]["received"] - startup.start(ranks // 6, 6).received) < 200


def test_a_start_on_more_nodes() -> None:
    assert startup.start(1, 1).between == startup.start(1, 1).inside == 0
    where = [Layout(nodes, 6) for nodes in (1, 2, 256, 4608)]
    seconds = [predict.init(TRUE, one) for one in where]
    assert seconds == sorted(seconds) and seconds[0] > TRUE.start
    assert predict.init(TRUE, where[-1]) > predict.init_computes(TRUE, 27_648) + 4608 * 6 * 40 * 6 * TRUE.beta


def test_several_members_that_send_to_one_are_slower() -> None:
    """As choose.c assumes it: 1 % per further member."""

    def load(n: int, algorithm: str) -> messages.Load:
        return messages.load(messages.choose(n, 65_536, "float32", algorithm), n, 65_536)

    two, eight = (load(n, "direct") for n in (2, 8))
    assert (two.incast, eight.incast) == (1.0, pytest.approx(1.06))
    assert load(8, "ring").incast == 1.0


def test_a_step() -> None:
    even = training.trace("even:1M:20")
    gradients = [(n, 0.05 * share) for n, share in zip(even.elements, even.ready, strict=True)]
    one, many = (predict.step(TRUE, Layout(nodes, 2), gradients, 0.05) for nodes in (1, 64))
    assert one.agreements == many.agreements and one.batches == many.batches >= 1
    assert 0 <= one.exposed < many.exposed and many.seconds == pytest.approx(0.05 + many.exposed)
    late = predict.raised([(1_048_576, 0.0), (1, 0.001), (1, 0.0012), (1, 0.02)], 0.021, 4)
    assert late == [(0.0, [1_048_576]), (0.003, [1, 1]), (0.021, [1])]  # R2, R3, R1
    assert predict.fused([10, 10, 30, 5], 20) == [20, 30, 5]


# ---- fit -----------------------------------------------------------------------------------------------------


CASES = (("barrier", 0), *(("allreduce", 4**i) for i in range(2, 13)))


def made(p: Parameters, nodes: tuple[int, ...] = (1, 2), noise: float = 0.02, per_node: int = 2, seed: int = 3,
         launches: int = 1, common: float = 0.0, cases: tuple[tuple[str, int], ...] = CASES) -> Results:  # fmt: skip
    """Times that the model itself gives, with noise of a launch's samples, of its cases, and of all of it together."""
    found = Results([{"hpccoll": "1", "build": "b", "revision": "r", "warnings": []}] * launches)
    random = np.random.default_rng(seed)
    number = np.repeat(np.arange(launches, dtype=np.int32), 20)
    for n in nodes:
        together = random.lognormal(0, common, launches)
        for what, size in cases:
            key = Key("collective", what, "hpccoll", "", "float32", "host", "mpi", per_node * n, n, size)
            empty = Case(key, np.ones(1), np.zeros(1, np.int32), np.ones(1, np.int32))
            seconds = fit.predictor(empty, {})
            assert seconds
            of_launch = together * random.lognormal(0, noise, launches)
            samples = seconds(p) * np.repeat(of_launch, 20) * random.lognormal(0, noise, 20 * launches)
            facts = {"version": "1", "verified": True}
            found.cases[key] = replace(empty, samples=samples, launch=number, calls=0 * number + 1, facts=facts)
    return found


def enough(p: Parameters, seed: int, **more: Any) -> Results:
    """Cases that determine all parameters but those of the start."""
    several = made(p, seed=seed, **more)
    several.add(made(p, (4,), seed=seed + 1000, cases=CASES[:2], **more))
    for ranks in (6, 12):
        several.add(made(p, (1,), per_node=ranks, seed=seed + 10_000 * ranks, cases=(("barrier", 0),), **more))
    return several


def test_a_fit_finds_the_parameters(tmp_path: Path) -> None:
    fitted = fit.fit(made(TRUE, (1, 2, 4)))
    assert set(fitted.unknown) == {"hop", "batch", "start", "member"}
    assert fitted.nodes == (1, 2, 4) and fitted.per_node == 2
    for name in ("edge", "alpha", "beta"):
        assert getattr(fitted.parameters, name) == pytest.approx(getattr(TRUE, name), rel=0.1), name
    for nodes in (4, 8, 4608):
        for size in (64, 1 << 16, 1 << 24):
            seconds = partial(predict.allreduce, where=Layout(nodes, 2), dtype="float32", nbytes=size)
            middle, low, high = fitted.interval(seconds, size)
            assert low < middle < high and seconds(TRUE) == pytest.approx(middle, rel=0.05)
    fitted.write(tmp_path / "model.json")
    assert fit.read(tmp_path / "model.json") == fitted


def test_a_start_is_fitted(tmp_path: Path) -> None:
    several = made(TRUE)
    for ranks in (6, 1536, 27_648):
        key = Key("start", "init, rank 0", "hpccoll", "", "", "virtual", "", ranks, ranks // 6, 0)
        samples = np.full(5, TRUE.start + TRUE.member * ranks)
        several.cases[key] = Case(key, samples, np.zeros(5, np.int32), np.ones(5, np.int32), {}, {"verified": True})
    fitted = fit.fit(several)
    assert set(fitted.unknown) == {"hop", "batch", "overhead"} and fitted.nodes == (1, 2) and fitted.per_node == 2
    assert fitted.parameters.start == pytest.approx(TRUE.start, rel=0.1)
    assert fitted.parameters.member == pytest.approx(TRUE.member, rel=0.1)
    assert all(nbytes == 0 or abs(off) < 0.1 for nbytes, off in fitted.residuals)


def test_what_no_case_determines_is_refused_with_a_case_that_would() -> None:
    fitted = fit.fit(made(TRUE, (1,)))
    assert {"edge", "alpha", "beta"} <= set(fitted.unknown)
    alone, two = (partial(predict.allreduce, where=Layout(n, 2), dtype="float32", nbytes=1 << 20) for n in (1, 2))
    assert fitted.interval(alone, 1 << 20)[0] == pytest.approx(alone(TRUE), rel=0.05)
    with pytest.raises(
        fit.UndeterminedError, match=r"depends on .*beta.*: measure .*an allreduce of 4 MiB or more on t"
    ):
        fitted.interval(two, 1 << 20)


def test_a_sum_that_is_determined_is_predicted_though_its_parts_are_not() -> None:
    """On one node with two ranks a barrier costs 2 hops and a batch; other numbers of ranks tell them apart."""
    few, more = fit.fit(made(TRUE)), fit.fit(enough(TRUE, 1))
    assert {"hop", "batch"} <= set(few.unknown) and not {"hop", "batch"} & set(more.unknown)
    barrier = partial(predict.allreduce, where=Layout(1, 2), dtype="float32", nbytes=4)
    assert few.interval(barrier, 4)[0] == pytest.approx(barrier(TRUE), rel=0.05)
    for name in ("hop", "batch"):
        assert getattr(more.parameters, name) == pytest.approx(getattr(TRUE, name), rel=0.25), name


LATENCY, OVERHEAD, GAP, INSIDE, BATCH, COPY = 1e-3, 1e-5, 8e-8, 2e-6, 4e-6, 2e-10
"""A LogGP network with a delay, its nodes' hops and batches, and their seconds per byte."""


def log_gp(what: str, nbytes: int, nodes: int) -> float:
    """Seconds on some nodes of two ranks: o + L + o for a round of messages, and o for each further one.

    The control tree has one level up to 17 nodes. Each node sends all its data to all others, in one round: up to 1 KiB
    on 6 nodes, up to 64 KiB on two.
    """
    round_of_all = OVERHEAD + LATENCY + OVERHEAD + (nodes - 2) * OVERHEAD if nodes > 1 else 0.0
    seconds = 2 * (INSIDE + round_of_all) + BATCH
    if what == "barrier":
        return seconds
    if nodes == 1:
        return seconds + 2 * COPY * nbytes
    return seconds + round_of_all + (nodes - 1) * GAP * nbytes + COPY * (2.5 + nodes / 2) * nbytes


def of_log_gp(cases: dict[int, tuple[int, ...]], noise: float = 0.02, launches: int = 6) -> Results:
    """Times of this network that scatter: for each number of nodes the bytes of allreduces, and 0 for a barrier."""
    found = Results([{"hpccoll": "1", "build": "b", "revision": "r", "warnings": []}] * launches)
    random, number = np.random.default_rng(7), np.repeat(np.arange(launches, dtype=np.int32), 20)
    for nodes, size in ((nodes, size) for nodes, all_sizes in cases.items() for size in all_sizes):
        what = "allreduce" if size else "barrier"
        key = Key("collective", what, "hpccoll", "", "float32", "host", "mpi", 2 * nodes, nodes, size)
        of_launch = np.repeat(random.lognormal(0, noise, launches), 20)
        samples = log_gp(what, size, nodes) * of_launch * random.lognormal(0, noise, 20 * launches)
        facts = {"version": "1", "verified": True}
        found.cases[key] = Case(key, samples, number, 0 * number + 1, {}, facts)
    return found


ON_TWO = {1: (0, 8, 1024, 65_536), 2: (0, 8, 1024, 65_536)}
AS_FOUR = {**ON_TWO, 4: (0, 8)}


def test_latency_and_overhead_of_a_network_are_told_apart() -> None:
    """With a delay of 1 ms, messages that come together cost a processor's time and no further delay."""
    fitted = fit.fit(of_log_gp(AS_FOUR))
    for name, value in (("edge", LATENCY + 2 * OVERHEAD), ("alpha", LATENCY + 2 * OVERHEAD), ("overhead", OVERHEAD)):
        low, high = fitted.range(name)
        assert low < value < high, name
    held = []
    for case in of_log_gp({3: (0, 8, 1024), 6: (0, 8, 1024), 16: (0,)}).cases.values():
        seconds = fit.predictor(case, {})
        assert seconds
        middle, low, high = fitted.interval(seconds, case.key.bytes)
        assert middle == pytest.approx(log_gp(case.key.what, case.key.bytes, case.key.nodes), rel=0.1), case.key
        held += [low < np.median(launch) < high for launch in case.by_launch()]
    assert sum(held) >= 0.95 * len(held)


def test_overhead_needs_three_nodes_that_meet() -> None:
    """On two nodes no message comes together with another: the model refuses 16, and names a case."""
    fitted = fit.fit(of_log_gp(ON_TWO))
    assert "overhead" in fitted.unknown
    barrier = partial(predict.agree, where=Layout(16, 2))
    with pytest.raises(
        fit.UndeterminedError, match=r"depends on .*overhead.*: measure .*on four nodes, or on two hosts"
    ):
        fitted.interval(barrier, 0)
    fit.fit(of_log_gp(AS_FOUR)).interval(barrier, 0)


def test_slow_messages_are_no_reason_to_assume_their_cost() -> None:
    """300 us for each message, in times that scatter by a tenth."""
    slow = replace(TRUE, edge=3e-4, alpha=3e-4)
    fitted = fit.fit(enough(slow, 5, noise=0.1))
    assert not {"edge", "alpha"} & set(fitted.unknown)
    for name in ("edge", "alpha"):
        low, high = fitted.range(name)
        assert low < getattr(slow, name) < high and low < getattr(fitted.parameters, name) < high


@pytest.mark.slow
@pytest.mark.parametrize(("launches", "common"), [(1, 0.0), (6, 0.05)])
def test_intervals_of_95_percent_hold_the_truth_so_often(
    launches: int, common: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The truth is known, as it made the times: of many fits, 95 of 100 intervals hold it, and each its estimate."""
    monkeypatch.setattr(fit, "STARTS", [TRUE])
    asked = [partial(predict.allreduce, where=Layout(n, 2), dtype="float32", nbytes=size)
             for n in (2, 16) for size in (1 << 10, 1 << 24)]  # fmt: skip
    held: list[bool] = []
    predicted: list[bool] = []
    for seed in range(FITS):
        fitted = fit.fit(enough(TRUE, seed, noise=0.04, launches=launches, common=common))
        for name in ("hop", "edge", "batch", "touch", "alpha", "overhead", "beta"):
            low, high = fitted.range(name)
            assert low < getattr(fitted.parameters, name) < high
            held.append(low < getattr(TRUE, name) < high)
        for seconds in asked:
            middle, low, high = fitted.interval(seconds, 1 << 20)
            assert low < middle < high
            predicted.append(low < seconds(TRUE) < high)
    assert 0.9 <= sum(held) / len(held) <= 0.99, sum(held) / len(held)
    assert sum(predicted) / len(predicted) >= 0.9, sum(predicted) / len(predicted)


def test_the_choice_between_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    """2 (n - 1)/n of what the ranks share, in as many messages as the stages have partners, twice.

    Ranks that take turns send the messages of a sixth of the chunks each.
    """
    where = ["--nodes", "8,4608", "--ranks-per-node", "6", "--dtype", "float16"]
    assert main(["model", "choice", *where, "--sizes", "1M", "--json"]) == 0
    in_rails, in_turns = json.loads(capsys.readouterr().out)
    for one, n, chunks_of_each in ((in_turns, 4608, in_turns["chunks"] // 6), (in_rails, 8, in_rails["chunks"])):
        assert one["nodes"] == n and one["dtype"] == "float16" and one["rails"] == 6
        assert one["sent"] == pytest.approx(2 * (n - 1) / n * (1 << 20) / 6, rel=0.02)
        stages = one["how"].removesuffix(", in turns").replace("direct", f"stages of {n}").removeprefix("stages of ")
        radices = [int(word) for word in stages.split(" x ")]
        assert np.prod(radices) == n and one["messages"] == chunks_of_each * 2 * sum(r - 1 for r in radices)
    assert in_turns["chunks"] % 6 == 0 and in_turns["how"].endswith("in turns")
    assert in_rails["how"] == "direct"
    assert main(["model", "choice", *where, "--sizes", "8"]) == 0 and "whole" in capsys.readouterr().out
    assert main(["model", "choice", "--nodes", "1"]) == 1


def test_refusals(tmp_path: Path) -> None:
    few = made(TRUE, (1,))
    few.cases = dict(list(few.cases.items())[:2])
    with pytest.raises(ResultsError, match=r"2 cases that the model knows .* needs 3 at least.* --named "):
        fit.fit(few)
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(ResultsError, match="not a file of this version's `hpccoll model fit`"):
        fit.read(tmp_path / "other.json")


@pytest.mark.parametrize(("ranks", "nodes", "nbytes", "agrees"), [
    (2, 1, 256 << 10, False), (2, 1, 512 << 10, True), (4, 1, 64 << 10, True), (2, 2, 1024, False),
    (2, 2, 2048, True), (16, 16, 8, False), (64, 1, 8, False), (300, 1, 8, True),
])  # fmt: skip
def test_calls_without_an_agreement_are_left_out(ranks: int, nodes: int, nbytes: int, agrees: bool) -> None:
    """Unnamed ones that take the shortcut of a node, or on which nodes vote: see decisions 83, 94, 105, 113 and 117."""
    key = Key("collective", "allreduce", "hpccoll", "", "float32", "host", "mpi", ranks, nodes, nbytes)
    case = Case(key, np.ones(1), np.zeros(1, np.int32), np.ones(1, np.int32), {}, {"style": "unnamed"})
    assert (fit.predictor(case, {}) is not None) == agrees


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files.write(tmp_path / "two.h5", made(TRUE, (1, 2, 4)))
    files.write(tmp_path / "eight.h5", made(TRUE, (8,)))
    files.write(tmp_path / "slow.h5", made(replace(TRUE, beta=2 * TRUE.beta), (8,)))
    model = str(tmp_path / "model.json")
    assert main(["model", "fit", str(tmp_path / "two.h5"), "--out", model]) == 0
    assert "byte on a node's link" in capsys.readouterr().out
    assert main(["model", "predict", model, "--against", str(tmp_path / "eight.h5")]) == 0
    assert re.search(
        r"# largest error .*; \d+ of 12 measured times are outside of their interval", capsys.readouterr().out
    )
    assert main(["model", "predict", model, "--against", str(tmp_path / "slow.h5"), "--from-size", "1M"]) == 3
    capsys.readouterr()
    assert main(["model", "predict", model, "--nodes", "1,4608", "--model", "resnet50", "--json"]) == 0
    one, many = json.loads(capsys.readouterr().out)
    assert main(["model", "predict", model, "--nodes", "4608", "--sizes", "8"]) == 0
    assert "init(), " in capsys.readouterr().out
    times = []
    for latency in ("1", "64M"):  # bytes count, or messages do: two algorithms for 64 KiB
        where = ["--nodes", "8", "--sizes", "64K", "--latency-bytes", latency]
        assert main(["model", "predict", model, "--json", *where]) == 0
        times.append(json.loads(capsys.readouterr().out)[-1]["seconds"])
    assert times[0] != times[1]
    assert main(["model", "predict", model, "--nodes", "8", "--sizes", "64K"]) == 0
    out = capsys.readouterr().out
    assert "not determined  init()" in out and "measure bench startup, with two numbers of virtual ranks" in out
    assert one["ranks"] == 2 and many["ranks"] == 9216 and one["efficiency"] > many["efficiency"]
    for knob, said in (("algorithm=x", "not one of auto"), ("fanout=9999", "1024"), ("latency-bytes=0", "1 to 1024M")):
        assert main(["model", "predict", model, "--nodes", "8", f"--{knob}"]) == 1
        assert said in capsys.readouterr().err
        assert main(["model", "choice", "--nodes", "8", f"--{knob}"]) == 1
        assert said in capsys.readouterr().err
    assert main(["model", "fit", str(tmp_path / "two.h5"), "--out", str(tmp_path)]) == 1
    assert f"{tmp_path} could not be written: [Errno 21] Is a directory" in capsys.readouterr().err
    assert main(["model", "predict", model]) == 1
    assert "predict what?" in capsys.readouterr().err
