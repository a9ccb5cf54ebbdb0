# SPDX-License-Identifier: Apache-2.0
"""All operations over nodes of threads: even, uneven, interleaved, of one rank, and a world of one."""

from collections.abc import Callable
from pathlib import Path

import pytest
from bindings_table import OPERATIONS as BINDINGS

LAYOUTS = ["0", "0,0", "0,1", "0,0,0,0", "0,0,1,1", "0,1,0,1", "0,0,0,1", "0,1,2,2", "0,1,2,3", "2,0,1,1"]
RARE = ("0,0,0,0", "0,1,0,1", "0,1,2,3")  # `make test-all` has them
OPERATIONS = [name for name, one in BINDINGS.items() if one.traits and "NO_TENSORS" not in one.traits]
ALGORITHMS = ["direct", "stages", "ring"]

ROOT = Path(__file__).resolve().parents[3]
TRANSPORT = ROOT / "ext" / "transport"
SOURCES = [
    *(str(file.relative_to(ROOT)) for file in sorted(TRANSPORT.rglob("*.c")) if file.name != "mpi.c"),
    "ext/core/reserve.c",
    "ext/core/status.c",
]

Run = Callable[..., str]


def slow(*values: str) -> list[object]:
    """Values that only `make test-all` tries."""
    return [pytest.param(value, marks=pytest.mark.slow) for value in values]


@pytest.fixture(scope="module")
def driver(build_c: Callable[..., Path]) -> Path:
    return build_c("tests/transport/hierarchy/hierarchy_driver.c", *SOURCES)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("layout", [*(each for each in LAYOUTS if each not in RARE), *slow(*RARE)])
def test_every_operation(driver: Path, run_c: Run, layout: str) -> None:
    """Groups, joined ranks, results of the wrong size, narrow types, scale factors, in place and not."""
    assert "150 cases" in run_c(driver, layout, 1, 150, timeout=100)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("layout", ["0,0,1,1", "0,1,2,2"])
def test_small_chunks(driver: Path, run_c: Run, layout: str, algorithm: str) -> None:
    """A hundred chunks through one rail: slots and channels are used again and again."""
    assert "40 cases" in run_c(driver, layout, 2, 40, algorithm, 3000, 1, timeout=100)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("operation", ["reduce", "gather", "scatter"])
@pytest.mark.parametrize("layout", ["0,0,0", "0,0,1,1", "0,1,0,1", "0,0,0,1", "0,1,2,2"])
def test_rooted_operations(driver: Path, run_c: Run, layout: str, operation: str) -> None:
    """Any root, uneven and empty rows, joined ranks, results of the wrong size."""
    assert "60 cases" in run_c(driver, layout, 3, 60, "auto", 0, 0, operation)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", [7, pytest.param(3, marks=pytest.mark.slow), pytest.param(4, marks=pytest.mark.slow)])
@pytest.mark.parametrize("operation", ["scan", "exscan"])
@pytest.mark.parametrize(
    "layout",
    ["0", "0,0,0", "0,0,1,1", *slow("0,1,0,1", "0,0,1,0,0", "0,0,0,1", "0,1,2,2")],
)
def test_prefix_reductions(driver: Path, run_c: Run, layout: str, operation: str, seed: int) -> None:
    """The bits of one reduction in rank order, at once and down the chain, in long messages and in short ones.

    Seed 7 has factors in the chain.
    """
    assert "60 cases" in run_c(driver, layout, seed, 60, "auto", 0, 0, operation)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("operation", [*slow("allgather", "alltoall"), "gather", "scatter"])
def test_all_ranks_are_asked_for_a_place(build_c: Callable[..., Path], run_c: Run, operation: str) -> None:
    """Before rows move; otherwise only where a result is large, or was brought."""
    sources = [f"{source} -DHC__ASKED_BYTES=0" if "/hierarchy/" in source else source for source in SOURCES]
    driver = build_c("tests/transport/hierarchy/hierarchy_driver.c", *sources)
    for layout in ("0,0", "0,0,1,1", "0,1,0,1", "0,0,0,1", "0,1,2,2"):
        assert "60 cases" in run_c(driver, layout, 3, 60, "auto", 0, 0, operation)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_parts_of_a_reducescatter_by_node(build_c: Callable[..., Path], run_c: Run) -> None:
    """As in sets of many ranks."""
    many = (f"{source} -DRANKS_MANY=1" if "scatter" in source else source for source in SOURCES)
    driver = build_c("tests/transport/hierarchy/hierarchy_driver.c", *many)
    for layout in ("0,0,1,1", "0,1,0,1", "0,0,0,1"):
        assert "150 cases" in run_c(driver, layout, 5, 150)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("chunk_bytes", [0, 3000])
@pytest.mark.parametrize("layout", ["0,0,1,1", "0,0,1,1,2,2", "0,0,0,1,1"])
def test_ranks_take_turns(build_c: Callable[..., Path], run_c: Run, layout: str, chunk_bytes: int) -> None:
    """As among many nodes: each chunk has one driver, and the chunks of all are under way at once."""
    few = "-DFEW_NODES=1 -DLEAST_SHARD_BYTES=16"
    sources = [f"{source} {few}" if source.endswith("hierarchy/allreduce.c") else source for source in SOURCES]
    driver = build_c("tests/transport/hierarchy/hierarchy_driver.c", *sources)
    assert "60 cases" in run_c(driver, layout, 6, 60, "auto", chunk_bytes, 0, "allreduce")


@pytest.fixture(scope="module")
def scattering(build_c: Callable[..., Path]) -> Callable[[str], Path]:
    """A driver whose broadcasts and reduces go in stages between nodes, however few; with more flags for the cut."""

    def build(flags: str = "") -> Path:
        options = {
            "broadcast.c": "-Dhc__broadcast_stages=any_stages",
            "reduce.c": "-Dhc__reduce_stages=any_reduce_stages",
            "allreduce.c": flags,
        }
        sources = [
            f"{source} {options.get(Path(source).name, '')}" if "/hierarchy/" in source else source
            for source in SOURCES
        ]
        return build_c("tests/transport/hierarchy/hierarchy_driver.c", *sources)

    return build


STAGED = ["broadcast", "reduce"]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("operation", STAGED)
@pytest.mark.parametrize(("chunk_bytes", "seed"), [(0, 1), (3000, 2)])
@pytest.mark.parametrize(
    "layout",
    ["0,1", "0,0,1,1", "0,1,2", "0,1,2,2", "2,0,1,1", "0,0,0,1,1", "0,1,2,3,4", "0,0,1,1,2,2,3,3", "0,1,2,0,1,3,2"],
)
def test_broadcasts_and_reduces_in_stages(
    scattering: Callable[[str], Path], run_c: Run, layout: str, chunk_bytes: int, seed: int, operation: str
) -> None:
    """Any root, joined ranks, several tensors, in place and not, in one chunk and in many."""
    assert "100 cases" in run_c(scattering(""), layout, seed, 100, "auto", chunk_bytes, 0, operation, timeout=100)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("operation", STAGED)
@pytest.mark.parametrize("chunk_bytes", [0, 3000])
@pytest.mark.parametrize("layout", ["0,0,1,1,2,2", "0,0,0,1,1", "1,0,2,1,0,2,3,3,3"])
def test_stages_in_turns(
    scattering: Callable[[str], Path], run_c: Run, layout: str, chunk_bytes: int, operation: str
) -> None:
    """As among many nodes."""
    driver = scattering("-DFEW_NODES=1 -DLEAST_SHARD_BYTES=16")
    assert "100 cases" in run_c(driver, layout, 6, 100, "auto", chunk_bytes, 0, operation, timeout=100)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("layout", ["0,0,1,1", "0,1,2,2"])
def test_stages_among_other_operations(scattering: Callable[[str], Path], run_c: Run, layout: str) -> None:
    """The slots of the node and the channels of the net are used in turn."""
    assert "150 cases" in run_c(scattering(""), layout, 4, 150, timeout=100)


@pytest.mark.parametrize("operation", STAGED)
@pytest.mark.parametrize("layout", ["0,1", "0,0,1,1", "0,1,2,2"])
def test_stages_are_abandoned(scattering: Callable[[str], Path], run_c: Run, layout: str, operation: str) -> None:
    """A rank that never comes: the others give up, and nothing is left in flight."""
    run_c(scattering(""), layout, 1, "abandon", operation)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("layout", ["0,0,0,1", "0,1,1,1,1"])
def test_nodes_of_few_and_of_many_ranks(build_c: Callable[..., Path], run_c: Run, layout: str) -> None:
    """A node of many ranks has less space for a chunk, as one of 48 beside one of 4: all cut as that of most ranks."""
    little = f"-DCHUNKS_BYTES={14 * 2 * 4096}"
    sources = [f"{source} {little}" if source.endswith("shm/layout.c") else source for source in SOURCES]
    driver = build_c("tests/transport/hierarchy/hierarchy_driver.c", *sources)
    assert len(run_c(driver, layout, 1, "bytes", 300_000).splitlines()) == len(layout.split(","))


@pytest.mark.parametrize(("layout", "nodes"), [("0,0,1,1", 2), ("0,0,1,1,2,2", 3), ("0,0,0,1", 2)])
def test_bytes_of_each_stage(driver: Path, run_c: Run, layout: str, nodes: int) -> None:
    """Emulated nodes really move the bytes over shared memory and over the net, and no byte more."""
    count = 960_000
    lines = [list(map(int, line.split())) for line in run_c(driver, layout, 1, "bytes", count).splitlines()]
    sizes = [layout.split(",").count(str(n)) for n in range(nodes)]
    sent = sum(line[4] for line in lines)
    assert sent == 2 * (nodes - 1) * 4 * count  # every node: 2 (N - 1)/N of the array
    for rank, packed, reduced, spread, _ in sorted(lines):
        local = sizes[int(layout.split(",")[rank])]
        if local > 1:  # what the others reduce goes through the segment; my share of the sum; the whole result
            assert packed == pytest.approx(4 * count * (local - 1) / local, rel=0.01)
            assert spread == 4 * count
            assert reduced == pytest.approx(4 * count / local, rel=0.01)


@pytest.mark.parametrize("rows", [960_000, 960_003, 5])
@pytest.mark.parametrize("layout", ["0,0,1,1", "0,1,0,1", "0,0,0,1", "0,1,2,2", "0,1,2"])
def test_bytes_of_a_reducescatter(driver: Path, run_c: Run, layout: str, rows: int) -> None:
    """A node sends the others their rows and nothing else: (N - 1)/N of the array where nodes are even."""
    lines = [list(map(int, line.split())) for line in run_c(driver, layout, 1, "scattered", rows).splitlines()]
    node_of = layout.split(",")
    own = dict.fromkeys(node_of, 0)
    sent = dict.fromkeys(node_of, 0)
    for rank, *_, bytes_sent in lines:
        own[node_of[rank]] += 4 * (rows // len(node_of) + (rank < rows % len(node_of)))
        sent[node_of[rank]] += bytes_sent
    assert sent == {node: 4 * rows - bytes_kept for node, bytes_kept in own.items()}


@pytest.mark.parametrize("layout", ["0,0,1,1", "0,0,0,1", "0,1,2,2", "0,1,2,3"])
def test_bytes_of_a_reduce(driver: Path, run_c: Run, layout: str) -> None:
    """Every node but the root's sends the array once, half of what an allreduce sends; only the root copies it out."""
    count = 960_000
    lines = [list(map(int, line.split())) for line in run_c(driver, layout, 1, "reduced", count).splitlines()]
    nodes = len(set(layout.split(",")))
    assert sum(line[4] for line in lines) == (nodes - 1) * 4 * count
    assert all(spread == 0 for rank, _, _, spread, _ in lines if rank != len(lines) - 1)


@pytest.mark.parametrize("layout", ["0,0,0", "0,0,1,1", "0,1,2,2"])
def test_deterministic_bits(driver: Path, run_c: Run, layout: str) -> None:
    """Equal bits fused and not, in chunks of any length, under random delays."""
    assert len({run_c(driver, layout, 1, "bits", chunk) for chunk in (0, 5000, 66_000)}) == 1


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("layout", ["0,0", "0,1", "0,0,1,1"])
def test_abandon(driver: Path, run_c: Run, layout: str, operation: str) -> None:
    """A rank that never comes: the others give up, and nothing is left in flight."""
    run_c(driver, layout, 1, "abandon", operation)


@pytest.mark.parametrize("operation", ["allreduce", "reducescatter"])
@pytest.mark.parametrize("layout", ["0,0,1,1", "0,0,1,1,2,2", "0,0,0,1,1"])
def test_stages_overlap(build_c: Callable[..., Path], run_c: Run, layout: str, operation: str) -> None:
    """The net is held back until it is seen that later chunks are reduced, and earlier ones spread, meanwhile."""
    run_c(build_c("tests/transport/hierarchy/overlap.c", *SOURCES), layout, operation)


# ---- alltoall: counts, few rows with them, and many rows after them -------------------------------------------

COUNTS = 24  # bytes for each tensor, from a rank to another
FEW = 4096  # of rows from a rank to another: as many travel with the counts in these tests
FEWER = f"-DHC__WITH_COUNTS_BYTES={FEW}"  # so few that the ranks do not vote on results


@pytest.fixture(scope="module")
def alltoall_driver(build_c: Callable[..., Path]) -> Path:
    sources = [f"{source} {FEWER}" if "/hierarchy/" in source else source for source in SOURCES]
    return build_c("tests/transport/hierarchy/alltoall_driver.c", *sources)


def rows_of_alltoall(r: int, q: int, pieces: int, base: int) -> list[int]:
    """By tensor."""
    return [max(base, 0) + (base >= 0) * ((r + 2 * q + piece) % 3) for piece in range(pieces)]


def messages_of_alltoall(layout: str, message: int, pieces: int, base: int) -> list[list[int]]:
    """Rank, messages and bytes that it sends to ranks of other nodes; messages of `message` bytes at most."""
    node = layout.split(",")
    few = min(FEW, message - COUNTS * pieces) if message else FEW
    lines = []
    for r in range(len(node)):
        sent = [0, 0]
        for q in range(len(node)):
            if node[r] == node[q]:
                continue
            tensors = rows_of_alltoall(r, q, pieces, base)
            separate = [n for n in tensors if n] if sum(tensors) > few else []
            for length in [COUNTS * pieces + (0 if separate else sum(tensors)), *separate]:
                sent[0] += -(-length // message) if message else 1
                sent[1] += length
        lines.append([r, *sent])
    return lines


@pytest.mark.parametrize("pieces", [1, 3])
@pytest.mark.parametrize("layout", ["0,1", "0,0,1,1", "0,1,0,1", "0,0,0,1", "0,1,2,2", "2,0,1,1,0", "0,1,2,3"])
def test_messages_of_an_alltoall(alltoall_driver: Path, run_c: Run, layout: str, pieces: int) -> None:
    """One message per rank of another node while its rows are few, one more per tensor beyond; none for no rows."""
    for base in (-1, 0, 1, FEW // pieces - 3, FEW // pieces - 1, FEW // pieces, 10_000):
        lines = sorted(
            list(map(int, line.split())) for line in run_c(alltoall_driver, layout, 0, pieces, base).splitlines()
        )
        assert lines == messages_of_alltoall(layout, 0, pieces, base), base


@pytest.mark.parametrize(("message", "pieces"), [(1000, 1), (1000, 5), (50, 2), (48, 2), (30, 2)])
@pytest.mark.parametrize("layout", ["0,1", "0,0,0,1"])
def test_alltoall_over_a_net_that_cuts_messages(
    alltoall_driver: Path, run_c: Run, layout: str, message: int, pieces: int
) -> None:
    """Only rows that fit into the net's longest message travel with the counts, which may be longer themselves."""
    for base in (0, 1, max(0, (message - COUNTS * pieces) // pieces - 1), 3000):
        lines = sorted(
            list(map(int, line.split())) for line in run_c(alltoall_driver, layout, message, pieces, base).splitlines()
        )
        assert lines == messages_of_alltoall(layout, message, pieces, base), base


@pytest.mark.timeout(120)
@pytest.mark.parametrize("few", [0, 30, 400])
@pytest.mark.parametrize("layout", ["0,1", "0,0,1,1", *slow("0,1,0,1", "2,0,1,1,0"), "0,1,2,2"])
def test_limits_of_an_alltoall(build_c: Callable[..., Path], run_c: Run, layout: str, few: int) -> None:
    """Random rows below and above the limit in a group, joined ranks, refused results."""
    sources = [f"{source} -DHC__WITH_COUNTS_BYTES={few}" if "/hierarchy/" in source else source for source in SOURCES]
    driver = build_c("tests/transport/hierarchy/hierarchy_driver.c", *sources)
    for seed in (11, 12):
        assert "80 cases" in run_c(driver, layout, seed, 80, "auto", 0, 0, "alltoall")


# The same where one message from a node to a node has the counts and few rows of all pairs of their ranks.

CARRIED = f"-DHC__CARRIED_MESSAGES=0 -DHC__CARRIED_BYTES={FEW}"  # as among many ranks


@pytest.fixture(scope="module")
def carriers_driver(build_c: Callable[..., Path]) -> Path:
    sources = [f"{source} {FEWER} {CARRIED}" if "/hierarchy/" in source else source for source in SOURCES]
    return build_c("tests/transport/hierarchy/alltoall_driver.c", *sources)


def carried_messages(layout: str, message: int, pieces: int, base: int) -> list[list[int]]:
    """As messages_of_alltoall(): local rank k % (ranks of its node) has the messages to the carrier on node k."""
    node = [int(each) for each in layout.split(",")]
    ranks = [[r for r, its in enumerate(node) if its == k] for k in range(max(node) + 1)]
    few = min(FEW, message // max(map(len, ranks)) ** 2 - COUNTS * pieces) if message else FEW
    lines = []
    for r, mine in enumerate(node):
        sent = [0, 0]
        for k, others in enumerate(ranks):
            if k == mine:
                continue
            if ranks[mine][k % len(ranks[mine])] == r:
                pairs = [sum(rows_of_alltoall(s, q, pieces, base)) for s in ranks[mine] for q in others]
                sent[0] += 1
                sent[1] += COUNTS * pieces * len(pairs) + sum(pair for pair in pairs if pair <= few)
            for tensors in (rows_of_alltoall(r, q, pieces, base) for q in others):
                separate = [n for n in tensors if n] if sum(tensors) > few else []
                sent[0] += sum(-(-n // message) if message else 1 for n in separate)
                sent[1] += sum(separate)
        lines.append([r, *sent])
    return lines


@pytest.mark.parametrize(("message", "pieces"), [(0, 1), (0, 3), (2000, 1)])
@pytest.mark.parametrize("layout", ["0,0,1,1", "0,1,0,1", "0,0,0,1", "0,1,2,2", "2,0,1,1,0", "0,0,1,1,2,3,3"])
def test_messages_of_carriers(carriers_driver: Path, run_c: Run, layout: str, message: int, pieces: int) -> None:
    """One message per pair of nodes, while rows are few."""
    for base in (-1, 0, 20, FEW // pieces - 1, 5000):
        output = run_c(carriers_driver, layout, message, pieces, base)
        lines = sorted(list(map(int, line.split())) for line in output.splitlines())
        assert lines == carried_messages(layout, message, pieces, base), base


@pytest.mark.timeout(120)
@pytest.mark.parametrize("few", [30, 4096])
@pytest.mark.parametrize(
    "layout", ["0,0", "0,1", "0,0,1,1", *slow("0,1,0,1", "0,0,0,1", "0,1,2,2"), "2,0,1,1,0", "0,0,1,1,2,2,3,3,3"]
)
def test_carriers(build_c: Callable[..., Path], run_c: Run, layout: str, few: int) -> None:
    """Random rows below and above the limit in a group, joined ranks, refused results."""
    flags = f"-DHC__CARRIED_MESSAGES=0 -DHC__CARRIED_BYTES={few}"
    sources = [f"{source} {flags}" if "/hierarchy/" in source else source for source in SOURCES]
    driver = build_c("tests/transport/hierarchy/hierarchy_driver.c", *sources)
    for seed in (11, 12):
        assert "80 cases" in run_c(driver, layout, seed, 80, "auto", 0, 0, "alltoall")


@pytest.mark.parametrize("layout", ["0,0", "0,0,1,1", "0,0,0,1"])
def test_abandoned_carriers(build_c: Callable[..., Path], run_c: Run, layout: str) -> None:
    """A rank that never comes: the others give up, and nothing is left in flight."""
    sources = [f"{source} {CARRIED}" if "/hierarchy/" in source else source for source in SOURCES]
    run_c(build_c("tests/transport/hierarchy/hierarchy_driver.c", *sources), layout, 1, "abandon", "alltoall")
