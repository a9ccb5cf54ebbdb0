# SPDX-License-Identifier: Apache-2.0
"""Knobs that change while a World runs: on all ranks after the same entry of the log; and the tuner that does it."""

import random
import time

import numpy as np
import pytest

import hpccoll
from hpccoll import errors, testing

LAYOUTS = ["2", "3", "1+1", "2+1"]
SMALL = [f"g{i}" for i in range(40)]


def step(world, names=SMALL):
    """One step of a training: all gradients at once. Returns how many batches they went in."""
    before = world.stats()["batches"]
    handles = [world.allreduce_async(np.full(64, float(world.rank)), name=name) for name in names]
    for handle in handles:
        assert handle.wait()[0] == sum(range(world.size))
    return world.stats()["batches"] - before


def change(world, threshold):
    """Rank 0 proposes; one step carries it to all ranks."""
    if world.rank == 0:
        world.core.tune(threshold, 1 << 30, 1.0)
    world.barrier()
    step(world)
    assert world.base.loop.tuning()["fusion_threshold"] == threshold


@pytest.mark.parametrize("layout", LAYOUTS)
def test_all_ranks_cut_alike_after_the_change(layout):
    """40 requests of 512 bytes in batches of 1, 4 and 40; the factors of the windows keep a step in one entry."""

    def program(world):
        world_batches = []
        for threshold in (512, 2048, 1 << 20):
            change(world, threshold)
            world_batches.append(step(world))
        return world_batches, world.base.loop.tuning()["changes"]

    for batches, changes in testing.make_and_run(
        sum(map(int, layout.split("+"))), program, nodes=layout if "+" in layout else "", raise_bytes=1 << 30,
        raise_window=1.0,
    ):  # fmt: skip
        assert batches == [40, 10, 1]
        assert changes == 3


@pytest.mark.parametrize("seed", range(4))
def test_at_any_time(seed):
    """Random changes beside requests in an order of each rank's own: results hold, and all ranks end alike."""

    def program(world):
        chance = random.Random(100 * seed + world.rank)
        for _ in range(60):
            if world.rank == 0 and chance.random() < 0.5:
                world.core.tune(chance.choice([0, 600, 5000, 1 << 20]), chance.choice([0, 4000, 1 << 22]), 0.0002)
            names = chance.sample(SMALL, len(SMALL))
            if chance.random() < 0.2:
                time.sleep(chance.uniform(0, 0.002))
            step(world, names)
        step(world)
        tuning = world.base.loop.tuning()
        del tuning["at"]
        return tuning

    found = testing.make_and_run(3, program, nodes="2+1")
    assert found[0]["changes"] > 5
    assert found == [found[0]] * 3


def test_only_the_first_rank_proposes():
    def program(world):
        if world.rank:
            with pytest.raises(errors.InvalidArgumentError, match="only the first rank"):
                world.core.tune(1, 1, 1.0)
        return step(world) > 0

    assert all(testing.make_and_run(2, program))


@pytest.mark.parametrize("window", [0.000065, 0.00026, 0.000489])
def test_a_window_comes_back_as_it_was_given(window):
    """The tuner waits until the ranks have it; window * 1e9 is below the number of nanoseconds."""

    def program(world):
        first = world.base.loop.tuning()["raise_window"]
        if world.rank == 0:
            world.core.tune(1 << 20, 1 << 20, 2 * window)
        world.barrier()
        step(world)
        return round(first, 9), round(world.base.loop.tuning()["raise_window"], 9)

    assert testing.make_and_run(2, program, raise_window=window) == [(window, 2 * window)] * 2


def test_laps():
    """The trace gives the time from one request of a name to the next, with the bytes between."""
    from hpccoll import _core

    def program(world):
        laps = _core.Laps(world.base.loop, "g3", 0)
        for _ in range(5):
            step(world, SMALL[:6])
        found = laps.read()
        assert laps.read() == []
        return found

    for laps in testing.make_and_run(2, program):
        assert [lap[2] for lap in laps] == [6 * 512] * 4
        assert all(begun < ended for begun, ended, _ in laps)


@pytest.mark.slow  # as many samples as it takes
@pytest.mark.timeout(300)
def test_tunes_a_bad_threshold(tmp_path, capfd):
    """A threshold that fuses nothing is found, and said; the log has every sample; all ranks end with equal knobs."""
    log = tmp_path / "log.csv"

    def program(world):
        ended = False
        while not ended:
            for _ in range(20):
                step(world)
            mine = world.base.tuner is not None and world.base.tuner.outcome is not None
            ended = bool(world.allreduce(int(mine), op=hpccoll.MAX, name="ended"))
        step(world)
        return world.base.loop.tuning()

    found = testing.make_and_run(
        2,
        program,
        nodes="1+1",
        autotune=True,
        autotune_log=str(log),
        autotune_steps=3,
        fusion_threshold=1,
        verbose=1,
    )
    assert found[0]["fusion_threshold"] == found[1]["fusion_threshold"] >= 1 << 16
    said = capfd.readouterr().err
    assert "hpccoll: autotune: fusion_threshold 1 -> 65536: steps take 0." in said
    assert "hpccoll: autotune: ended after " in said
    assert "HPCCOLL_FUSION_THRESHOLD=" in said
    lines = log.read_text().splitlines()
    assert lines[0] == "seconds,fusion_threshold,raise_bytes,raise_window,bytes_per_second,what"
    assert sum(line.endswith(",sample") for line in lines) > 20
    assert ",ended: 0." in lines[-1]


@pytest.mark.parametrize("log", ["/nowhere/log", "/dev/full"])
def test_a_log_that_cannot_be_written(log):
    with pytest.raises(errors.StartError, match=f"rank 0: HPCCOLL_AUTOTUNE_LOG: {log} cannot be written: No s"):
        testing.make_and_run(2, lambda world: None, autotune=True, autotune_log=log)


def test_the_job_ends_while_it_tunes():
    def program(world):
        for _ in range(30):
            step(world)
        return True

    assert testing.make_and_run(2, program, autotune=True, verbose=0) == [True, True]
