# SPDX-License-Identifier: Apache-2.0
"""Knobs: parsed, bounded, compared between ranks; and what the scheduler says of this process."""

import dataclasses
import re
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import hpccoll
from hpccoll import _core, config, testing
from hpccoll.compared import from_list
from hpccoll.detect import contradictions
from hpccoll.rendezvous import ThreadGroup, ThreadRendezvous


def test_every_knob_has_a_page():
    knobs = config.knobs()
    assert len(knobs) == len(dataclasses.fields(config.Config))
    for knob in knobs:
        assert knob.variable == "HPCCOLL_" + knob.name.upper()
        assert re.match('[a-z"].*[^.]$', knob.doc, re.IGNORECASE)
        assert knob.bounds


@pytest.mark.parametrize(
    ("text", "value"), [("4096", 4096), ("64K", 65536), ("2M", 2 << 20), ("1g", 1 << 30), ("0", 0)]
)
def test_sizes(text, value):
    assert config.read({"HPCCOLL_FUSION_THRESHOLD": text}).fusion_threshold == value
    assert config.read({}, fusion_threshold=text).fusion_threshold == value


def test_arguments_go_before_the_environment():
    env = {"HPCCOLL_DEBUG": "yes", "HPCCOLL_STALL_LIMIT": "7.5", "OTHER": "x"}
    read = config.read(env, stall_limit=3)
    assert read.debug is True
    assert read.stall_limit == 3
    assert config.read({"HPCCOLL_DEBUG": "1"}, debug="no").debug is False


@pytest.mark.parametrize(
    ("name", "value", "same"),
    [
        ("fusion_threshold", np.int64(4096), 4096),
        ("fusion_threshold", np.uint8(7), 7),
        ("stall_limit", np.float32(7.5), 7.5),
        ("stall_limit", np.int32(3), 3),
        ("debug", np.True_, True),
        ("wire", np.str_("fp16"), "fp16"),
    ],
)
def test_numbers_of_numpy_are_numbers(name, value, same):
    found = getattr(config.read({}, **{name: value}), name)
    assert (found, type(found)) == (same, type(same))
    with pytest.raises(hpccoll.InvalidArgumentError, match=r"fusion_threshold\) is -1, not 0 to"):
        config.read({}, fusion_threshold=np.int64(-1))


@pytest.mark.parametrize(
    ("name", "value", "hint"),
    [
        ("HPCCOLL_FUSION_TRESHOLD", "1", "did you mean HPCCOLL_FUSION_THRESHOLD?"),
        ("HPCCOLL_XYZZY", "1", "the knobs are"),
        ("HPCCOLL_CACHE_CAPACITY", "many", "0 to 1M (requests)"),
        ("HPCCOLL_CACHE_CAPACITY", "-1", "0 to 1M"),
        ("HPCCOLL_WIRE", "fp8", "one of none, fp16, bf16"),
        ("HPCCOLL_DEBUG", "maybe", "0 or 1"),
        ("HPCCOLL_NODES", "2x2", "3+1"),
        ("HPCCOLL_NODES", "2+0", "3+1"),
    ],
)
def test_a_wrong_variable_is_an_error_with_a_hint(name, value, hint):
    with pytest.raises(hpccoll.InvalidArgumentError, match=re.escape(hint)):
        config.read({name: value})


def test_a_wrong_argument_too():
    with pytest.raises(hpccoll.InvalidArgumentError, match="did you mean cache_capacity"):
        config.read({}, cache_capacitty=3)
    with pytest.raises(hpccoll.InvalidArgumentError, match="stall_limit"):
        config.read({}, stall_limit="long")


def test_differences_name_knob_ranks_and_values():
    configs = [config.Config(nodes="2"), config.Config(nodes="3"), config.Config(nodes="2", simd="portable")]
    assert config.differences(from_list(configs)) == "HPCCOLL_NODES differs between ranks: 2 on ranks 0, 2; 3 on rank 1"
    assert config.differences(from_list(configs[::2])) == ""


@pytest.mark.parametrize(("kept", "evicts"), [(0, False), (2, False), (1, True)])
def test_a_name_keeps_as_many_signatures_as_its_knob_says(kept, evicts):
    """A name whose shape alternates between two is cached if two are kept."""

    def program(world):
        for n in (1, 2) * 4:
            world.allreduce(np.ones(n), name="x")
        return world.stats()["evictions"] > 0

    assert testing.make_and_run(2, program, signatures_per_name=kept) == [evicts, evicts]


def test_ranks_must_agree_on_a_knob_of_the_engine():
    group = ThreadGroup(2)

    def make(rank):
        with pytest.raises(
            hpccoll.StartError, match="HPCCOLL_SIGNATURES_PER_NAME differs between ranks: 3 on rank 0; 4"
        ):
            hpccoll.World(rendezvous=ThreadRendezvous(group, rank), signatures_per_name=3 + rank, verbose=0)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(make, range(2)))


@pytest.mark.parametrize(
    ("machines", "nodes", "placed"),
    [
        ("aaaa", "", (0, 0, 0, 0)),
        ("abab", "", (0, 1, 0, 1)),
        ("aaaa", "2", (0, 0, 1, 1)),
        ("aaa", "2", (0, 0, 1)),
        ("aaaa", "3+1", (0, 0, 0, 1)),
        ("aabb", "2", (0, 1, 2, 3)),
        ("abab", "1+1", (0, 1, 2, 3)),
    ],
)
def test_placing(machines, nodes, placed):
    assert _core.nodes_of_machines(from_list(machines).of, len(machines), nodes) == placed


@pytest.mark.parametrize(
    ("machines", "nodes", "error"),
    [
        ("aaaa", "5", "HPCCOLL_NODES=5: the machine of rank 0 has only 4 ranks"),
        ("abbb", "2", "HPCCOLL_NODES=2: the machine of rank 0 has only 1 rank"),
        ("aaaa", "3+2", r"HPCCOLL_NODES=3\+2 places 5 ranks, the machine of rank 0 has 4"),
        ("abbabbb", "1+2", r"HPCCOLL_NODES=1\+2 places 3 ranks, the machine of rank 0 has 2"),
        ("aabba", "2+1", r"HPCCOLL_NODES=2\+1 places 3 ranks, the machine of rank 2 has 2"),
    ],
)
def test_placing_what_does_not_fit(machines, nodes, error):
    with pytest.raises(hpccoll.StartError, match=f"the World was not made: .*{error}"):
        _core.nodes_of_machines(from_list(machines).of, len(machines), nodes)


STEP = {"SLURM_STEP_NUM_TASKS": "64", "SLURM_STEP_ID": "0"}


@pytest.mark.parametrize(
    ("env", "size", "refused"),
    [
        ({}, 1, False),
        (STEP, 64, False),
        (STEP, 1, True),
        ({"SLURM_NTASKS": "64", "SLURM_STEP_NUM_TASKS": "1"}, 1, False),  # a batch script
        ({**STEP, "SLURM_STEP_NUM_TASKS": "1"}, 1, False),
        ({"OMPI_COMM_WORLD_SIZE": "4"}, 1, True),
        ({"PMI_SIZE": "2"}, 1, True),
        ({"JSM_NAMESPACE_SIZE": "6"}, 1, True),
        ({"PMI_SIZE": "1"}, 1, False),
    ],
)
def test_a_lonely_task(env, size, refused):
    assert bool(contradictions.singleton_problem(env, size)) == refused
