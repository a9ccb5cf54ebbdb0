# SPDX-License-Identifier: Apache-2.0
"""`hpccoll model choice`: its messages and bytes are those that real ranks count."""

import json
from pathlib import Path

import numpy as np
import pytest

from hpccoll import testing
from hpccoll.__main__ import main
from hpccoll.tools.model import choice
from hpccoll.tools.model.predict import Layout
from hpccoll.worlds import World

ROOT = Path(__file__).resolve().parents[3]
UNCUT = 512 << 10
"""Bytes of a segment over the net of threads, which cuts no message."""
SIZES = (64, 4 << 10, 48 << 10, 300_000, 1 << 20)


def counted(operation: str, nodes: int, per_node: int, nbytes: int, latency_bytes: int) -> np.ndarray:
    """Run the operation among real engines and data planes, whose ranks are threads, and read the net's counters.

    :returns: of the rank that has the most: messages and bytes of data sent, and bytes received
    """

    def program(world: World) -> list[int]:
        x, root = np.ones(nbytes // 4, np.float32), {} if operation == "allreduce" else {"root": 0}
        for _ in range(2):
            getattr(world, operation)(x, name="x", **root)
        before = world.stats()
        getattr(world, operation)(x, name="x", **root)
        more = {name: value - before[name] for name, value in world.stats().items()}
        return [more["net_sent_messages"] - more["control_messages_net"],
                more["net_sent_bytes"] - more["control_bytes_net"], more["net_received_bytes"]]  # fmt: skip

    ranks = testing.make_and_run(nodes * per_node, program, nodes=str(nodes), latency_bytes=latency_bytes)
    return np.max(ranks, axis=0)


@pytest.mark.timeout(200)
@pytest.mark.parametrize("operation", ["allreduce", "broadcast", "reduce"])
@pytest.mark.parametrize(("nodes", "per_node"), [(2, 1), (5, 2), (9, 1), (12, 2), (13, 1), (14, 1)])
def test_messages_and_bytes_are_those_of_real_ranks(operation: str, nodes: int, per_node: int) -> None:
    """With all forms: to the root, a binomial tree, a chain, stages, a node without a position, and turns."""
    for nbytes in SIZES:
        for latency in (1000, 20_000):
            real = counted(operation, nodes, per_node, nbytes, latency)
            where = Layout(nodes, per_node, latency_bytes=latency)
            said = choice.answer(where, "float32", nbytes, operation, UNCUT)
            of = (said.how, nbytes, latency)
            assert said.messages == real[0], of
            # control messages have some bytes more on the net than they count themselves
            assert 0 <= real[1] - said.sent <= 256, of
            assert 0 <= real[2] - said.received <= 1024, of


def ask(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, object]]:
    assert main(["model", "choice", *words, "--json"]) == 0
    found: list[dict[str, object]] = json.loads(capsys.readouterr().out)
    return found


def test_the_command_names_each_form(capsys: pytest.CaptureFixture[str]) -> None:
    """The sizes from which nodes scatter a broadcast are those of decision 115, and of a reduce those of 121."""
    forms = {
        (one["operation"], one["nodes"], one["bytes"]): str(one["how"])
        for one in ask(capsys, "broadcast", "reduce", "--nodes", "8,64,1024", "--sizes", "64,32K,4M,16M,256M")
    }
    assert not [form for (_, nodes, _), form in forms.items() if nodes == 8 and "stages" in form]
    assert forms["broadcast", 64, 64] == forms["reduce", 1024, 64] == "binomial tree"
    assert forms["reduce", 8, 64] == "all to the root"
    for operation in ("broadcast", "reduce"):
        assert forms[operation, 64, 32 << 10] == "stages of 4 x 4 x 4"
        assert forms[operation, 64, 16 << 20] == forms[operation, 1024, 256 << 20] == "chain"
        assert forms[operation, 1024, 16 << 20].startswith("stages")


def test_the_root_of_stages_carries_each_byte_twice(capsys: pytest.CaptureFixture[str]) -> None:
    """The root of a reduce receives twice (Rabenseifner); others receive a broadcast once (van de Geijn)."""
    scattered, added = ask(capsys, "broadcast", "reduce", "--nodes", "64", "--sizes", "256K")
    twice = 2 * 63 / 64 * (256 << 10)
    assert (scattered["sent"], scattered["received"]) == (pytest.approx(twice, rel=0.01), 256 << 10)
    assert added["received"] == pytest.approx(twice, rel=0.01)
    assert (scattered["messages"], added["messages_in"]) == (18, 18)  # 4 x 4 x 4: two times 3 partners per stage


def test_float16_is_rounded_per_stage_unless_sums_are_exact(capsys: pytest.CaptureFixture[str]) -> None:
    """Up a tree it travels as float32; see decision 121."""
    words = ("reduce", "--nodes", "64", "--sizes", "8,64K", "--dtype", "float16")
    assert [one["dtype"] for one in ask(capsys, *words)] == ["float32", "float16"]
    assert [one["dtype"] for one in ask(capsys, *words, "--exact-sums")] == ["float32", "float32"]
    assert [one["dtype"] for one in ask(capsys, "broadcast", *words[1:])] == ["float16", "float16"]


def test_an_operation_without_choices_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["model", "choice", "reduce", "--nodes", "8", "alltoall"]) == 1
    assert "'alltoall' is none of allreduce, broadcast, reduce" in capsys.readouterr().err


def test_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["model", "choice", "reduce", "allreduce", "--nodes", "2", "--sizes", "8,1M"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if not line.startswith("#")] == [
        "operation",
        *["reduce"] * 2,
        *["allreduce"] * 2,
    ]


def test_messages_are_as_long_as_the_nets_have_them() -> None:
    """Between machines, over MPI and over UCX."""
    for net in ("mpi", "ucx"):
        text = (ROOT / f"ext/transport/net/{net}.c").read_text()
        assert f"#define MESSAGE_BYTES ({choice.MESSAGE_BYTES >> 10} << 10)" in text
