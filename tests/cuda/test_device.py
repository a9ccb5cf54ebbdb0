# SPDX-License-Identifier: Apache-2.0
"""The data plane of tensors on a device keeps the transports' contract: the suite of the host's, over the fakes.

The suite is the transports' own (tests/transport/hierarchy/hierarchy_driver.c); on_device.h brings its tensors to the
device and back in a caller's stream, which nobody waits for: inputs come late, and are overwritten right behind the
batch.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from pairs import parametrize_pairs

pytestmark = pytest.mark.timeout(300)  # the first compiles it, with sanitizers slowly
Run = Callable[..., str]
Build = Callable[..., Path]
ROOT = Path(__file__).resolve().parents[2]
TRANSPORT = ROOT / "ext" / "transport"
SOURCES = [
    *(str(file.relative_to(ROOT)) for file in sorted(TRANSPORT.rglob("*.c")) if file.name != "mpi.c"),
    "ext/cuda/*.c",
    "ext/cuda/*/*.c",
    "ext/core/reserve.c",
    "ext/core/status.c",
]
LAYOUTS = ["0", "0,0", "0,0,1,1", "1,1,0,0", "0,1,2,2"]
ORDERS = ["eager", "lazy", "3"]
SOME_ORDERS = [pytest.param("eager", marks=pytest.mark.slow), "lazy", pytest.param("3", marks=pytest.mark.slow)]


@pytest.fixture(scope="session")
def suite(build_c: Build) -> Path:
    driver = "tests/transport/hierarchy/hierarchy_driver.c -DON_DEVICE"
    return build_c(driver, *SOURCES, flags=("-ldl",), name="device_driver")


@pytest.fixture(scope="session")
def scattering(build_c: Build) -> Path:
    """The suite with broadcasts that are scattered between nodes, as among many."""
    driver = "tests/transport/hierarchy/hierarchy_driver.c -DON_DEVICE"
    scattered = [f"{s} -Dhc__broadcast_stages=any_stages" if s.endswith("y/broadcast.c") else s for s in SOURCES]
    return build_c(driver, *scattered, flags=("-ldl",), name="scattering_driver")


@pytest.fixture
def run(suite: Path, fake_cuda: Path, fake_nccl: Path, run_c: Run) -> Run:
    """`run("0,0,1", 1, 50, mode="nccl", order="lazy")`: the suite's arguments, and how devices behave."""

    def start(*arguments: object, mode: str, order: str = "lazy", suite: Path = suite, **env: str) -> str:
        env = {"HPCCOLL_NCCL_LIBRARY": str(fake_nccl), **env}
        env |= {"HPCCOLL_CUDA_LIBRARY": str(fake_cuda), "FAKE_CUDA_ORDER": order, "TEST_DEVICE_MODE": mode}
        return run_c(suite, *arguments, env=env, timeout=280)

    return start


# ---- every operation and type --------------------------------------------------------------------------


@parametrize_pairs(layout=LAYOUTS, order=ORDERS, mode=["staged", "auto", "nccl_flat"])
def test_every_operation(run: Run, layout: str, order: str, mode: str) -> None:
    """All types, groups, joined ranks, results of the wrong size."""
    assert "60 cases" in run(layout, 1, 60, mode=mode, order=order)


@pytest.mark.parametrize("chunk", [64, 3000])
@pytest.mark.parametrize("order", ORDERS)
def test_staged_in_many_chunks(run: Run, chunk: int, order: str) -> None:
    """Slots are used again and again, and tensors are cut anywhere."""
    assert "15 cases" in run("0,0,1", 2, 15, "auto", chunk, 1, mode="staged", order=order)


@pytest.mark.parametrize(("layout", "mode"), [("0,0,1,1", "staged"), ("0,1,1", "auto"), ("0,0,0", "nccl_flat")])
@pytest.mark.parametrize("operation", ["reduce", "gather", "scatter", "scan", "exscan"])
def test_what_only_the_host_does_in_many_chunks(run: Run, operation: str, layout: str, mode: str) -> None:
    """Any root, joined ranks, results of the wrong size: staged in every mode."""
    assert "25 cases" in run(layout, 4, 25, "auto", 3000, 1, operation, mode=mode, order="3")


@parametrize_pairs(
    operation=["allreduce", "broadcast", "reducescatter"],
    order=ORDERS,
    layout=["0,0", "1,0,0,1", "0,0,0,1"],
    rails=[1, 2],
    late=["0", "2"],
)
def test_nccl_in_many_chunks(run: Run, operation: str, layout: str, order: str, rails: int, late: str) -> None:
    """Even and uneven nodes, fewer rails than ranks; the fake says when ranks call NCCL in different orders."""
    env = {"TEST_NCCL_ONLY": "1"} | ({"FAKE_NCCL_LATE": late} if late != "0" else {})
    arguments = (layout, 2, 25, "auto", 3000, rails, operation)
    assert "25 cases" in run(*arguments, mode="nccl", order=order, **env)


@parametrize_pairs(
    operation=["allgather", "alltoall"],
    order=ORDERS,
    layout__mode=[("0,0,0", "nccl"), ("0,1,1,0", "nccl_flat")],
    late=["0", "2"],
)
def test_one_communicator_in_many_pieces(
    run: Run, operation: str, order: str, layout: str, mode: str, late: str
) -> None:
    """Small tensors packed together, large ones as they lie, windows of shares; scratch memory is used again."""
    env = {"TEST_NCCL_ONLY": "1"} | ({"FAKE_NCCL_LATE": late} if late != "0" else {})
    assert "25 cases" in run(layout, 3, 25, "auto", 3000, 1, operation, mode=mode, order=order, **env)


# ---- MPI is given the device's memory ------------------------------------------------------------------

GPU_AWARE = {"TEST_GPU_AWARE": "yes"}


@pytest.mark.parametrize(
    ("mode", "layout"),
    [
        ("nccl", "0,0,1,1"),
        *(pytest.param(*those, marks=pytest.mark.slow) for those in [("nccl", "0,0,0,1"), ("nccl", "0,1,2")]),
        ("mpi", "0,0,1"),
        ("mpi", "0,1"),
    ],
)
@pytest.mark.parametrize("order", SOME_ORDERS)
def test_shards_that_stay_on_the_device(run: Run, layout: str, order: str, mode: str) -> None:
    """Every type, in whole and in chunks, in nodes of several ranks and of one: nothing is sent before it is made."""
    assert "25 cases" in run(layout, 3, 25, "auto", 0, 0, "allreduce", mode=mode, order=order, **GPU_AWARE)
    assert "15 cases" in run(layout, 4, 15, "auto", 3000, 1, "allreduce", mode=mode, order=order, **GPU_AWARE)
    for operation in ("broadcast", "reducescatter"):
        assert "15 cases" in run(layout, 5, 15, "auto", 3000, 0, operation, mode=mode, order=order, **GPU_AWARE)


@pytest.mark.parametrize("layout", ["0,0,1,1", "0,1,2,2", "0,1,2,3"])
@pytest.mark.parametrize("env", [{}, GPU_AWARE], ids=["pinned", "aware"])
def test_scattered_broadcasts(run: Run, scattering: Path, layout: str, env: dict[str, str]) -> None:
    """The net only reads the root's chunk, which may be its tensor."""
    for chunk in (0, 3000):
        arguments = (layout, 6, 25, "auto", chunk, 0, "broadcast")
        assert "25 cases" in run(*arguments, mode="nccl", order="3", suite=scattering, **env)


@pytest.mark.parametrize("algorithm", ["direct", "stages", "ring"])
@pytest.mark.parametrize("order", ["lazy", "5"])
def test_every_algorithm_on_the_device(run: Run, algorithm: str, order: str) -> None:
    arguments = ("0,1,2", 5, 20, algorithm, 3000, 1, "allreduce")
    assert "20 cases" in run(*arguments, mode="mpi", order=order, **GPU_AWARE)


@pytest.mark.parametrize("order", ORDERS)
def test_mpi_over_all_ranks_through_pinned_memory(run: Run, order: str) -> None:
    """Every operation: what neither kernels nor messages do is staged."""
    assert "40 cases" in run("0,0,1", 6, 40, mode="mpi", order=order)
    assert "20 cases" in run("0,0,1", 7, 20, mode="mpi", order=order, **GPU_AWARE)


@pytest.mark.parametrize("mode", ["staged", "auto"])
def test_deterministic_bits(run: Run, mode: str) -> None:
    """Equal bits fused and not, in chunks of any length."""
    assert len({run("0,1,1", 1, "bits", chunk, mode=mode) for chunk in (0, 5008, 66_000)}) == 1


# ---- bytes between nodes ------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def counter(build_c: Build) -> Path:
    return build_c("tests/cuda/device_bytes.c", *SOURCES, flags=("-ldl",))


@pytest.fixture
def sent(counter: Path, fake_cuda: Path, fake_nccl: Path, run_c: Run) -> Callable[..., list[int]]:
    """`sent("0,0,1,1", "broadcast", 1000, mode="nccl")`: bytes that each rank sent to other nodes."""

    def count(*arguments: object, mode: str) -> list[int]:
        env = {"HPCCOLL_CUDA_LIBRARY": str(fake_cuda), "HPCCOLL_NCCL_LIBRARY": str(fake_nccl)}
        said = run_c(counter, *arguments, env={**env, "TEST_DEVICE_MODE": mode})
        return [int(line.split()[1]) for line in sorted(said.splitlines())]

    return count


def test_bytes_of_a_broadcast(sent: Callable[..., list[int]]) -> None:
    """Each rail has its part, and every byte crosses once a node that needs it; staged, the root sends them all."""
    rows = 64 * 1000
    assert sent("0,0,1,1", "broadcast", rows, mode="nccl") == [2 * rows, 2 * rows, 0, 0]
    assert sent("0,0,1,1", "broadcast", rows, mode="staged") == [4 * rows, 0, 0, 0]
    assert sum(sent("0,0,1,1,2,2", "broadcast", rows, mode="nccl")) == 2 * 4 * rows
    assert sent("0,0,1,1", "broadcast", rows, mode="nccl_flat") == [0] * 4


@pytest.mark.parametrize("mode", ["staged", "nccl"])
@pytest.mark.parametrize("rows", [960_000, 960_003])
@pytest.mark.parametrize("layout", ["0,0,1,1", "0,0,0,1"])
def test_bytes_of_a_reducescatter(sent: Callable[..., list[int]], layout: str, rows: int, mode: str) -> None:
    """As on the host: a node sends the others their rows, (N - 1)/N of the array where nodes are even."""
    of_nodes = {"0": 0, "1": 0}
    for node, bytes_sent in zip(layout.split(","), sent(layout, "reducescatter", rows, mode=mode), strict=True):
        of_nodes[node] += bytes_sent
    for node, bytes_sent in of_nodes.items():
        others = 4 * rows * sum(other != node for other in layout.split(",")) / 4
        assert others - 64 <= bytes_sent <= others + 16 * 64


def test_one_communicator_sends_counts_only(sent: Callable[..., list[int]]) -> None:
    """Over NCCL nothing but the numbers of rows goes between nodes."""
    for operation in ("allgather", "alltoall"):
        assert max(sent("0,0,1,1", operation, 40_000, mode="nccl_flat")) <= 256
    assert sent("0,0,1,1", "reducescatter", 40_000, mode="nccl_flat") == [0] * 4


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("mode", ["staged", "nccl", "nccl_flat", "auto"])
def test_many_cases(run: Run, mode: str) -> None:
    for seed in range(10, 30):
        for layout in ("0,0,0", "0,1,0,1", "0,0,0,1,1", "0,1,2,3"):
            run(layout, seed, 40, "auto", 2000 * (seed % 3), 1 + seed % 2, mode=mode, order=str(seed))


# ---- sets that share devices -----------------------------------------------------------------------------


@pytest.mark.slow
def test_sets_that_launch_in_one_order_never_wait_for_each_other_in_a_circle(build_c: Build, run_c: Run) -> None:
    """In a model of devices that run one kernel at a time; without the order it gets stuck, as it should."""
    model = build_c("tests/cuda/launch_order.c", "ext/cuda/nccl/launch_order.c")
    assert run_c(model, 2000) == "0 of 2000 stuck\n"
    stuck = int(run_c(model, 100, "without").split()[0])
    assert stuck > 50


# ---- what goes wrong is said, in time ------------------------------------------------------------------

NCCL = "device 0 (0000:4a:00.0): NCCL 2.28.9 over 2 ranks"
LACKS = "; what that lacks is staged through the host"
PINNED = " of this node, messages between nodes through pinned memory (HPCCOLL_GPU_AWARE_MPI=no)"
CALLS = [
    ("allreduce", "the sum of a chunk"),
    ("broadcast", "the broadcast of a chunk"),
    ("allgather", "an allgather"),
    ("alltoall", "an alltoall"),
    ("reducescatter", "the sum of a chunk"),
]
SAME_GPU = (
    "ranks 0 and 1 are both on the GPU 0000:4a:00.0; NCCL needs one for each rank: ask the scheduler for a GPU a task, "
    "or choose the device by the local rank"
)
NO_NCCL = "rank 1 cannot open NCCL; `hpccoll info` there says what was tried, and what to do"
MIXED = (
    "rank 0 has NCCL 2.28.9 and rank 1 has NCCL 2.30.3; all ranks need the same one: "
    "HPCCOLL_NCCL_LIBRARY names its file"
)


@pytest.fixture(scope="session")
def failures(build_c: Build) -> Path:
    return build_c("tests/cuda/device_failures.c", *SOURCES, flags=("-ldl",))


@pytest.fixture
def fail(failures: Path, fake_cuda: Path, fake_nccl: Path, run_c: Run) -> Run:
    """`fail("0,0", "facts", mode="nccl")`: what each rank said, in the ranks' order."""

    def start(*arguments: object, mode: str = "nccl", **env: str) -> list[str]:
        env = {"HPCCOLL_CUDA_LIBRARY": str(fake_cuda), "HPCCOLL_NCCL_LIBRARY": str(fake_nccl), **env}
        env |= {"FAKE_CUDA_ORDER": "lazy", "TEST_DEVICE_MODE": mode}
        return sorted(run_c(failures, *arguments, env=env).splitlines())

    return start


@pytest.mark.parametrize(
    ("mode", "layout", "facts"),
    [
        ("staged", "0,0", "device 0 (0000:4a:00.0): staged through the host"),
        ("auto", "0,0", NCCL + LACKS),
        ("auto", "0,0,1,1", NCCL + PINNED + LACKS),
        ("auto", "0,1", "device 0 (0000:4a:00.0): staged through the host"),
        ("nccl_flat", "0,1", NCCL + LACKS),
    ],
)
def test_what_was_chosen_is_said(fail: Run, mode: str, layout: str, facts: str) -> None:
    ranks = range(len(layout.split(",")))
    assert fail(layout, "facts", mode=mode) == [f"{rank} batch DONE: {facts}" for rank in ranks]


FAKE = "fake device 0, CUDA 12.8"
TRY = "not tried: `hpccoll doctor --gpu-aware`"


@pytest.mark.parametrize(
    ("env", "says"),
    [
        ({"TEST_GPU_AWARE": "yes"}, "from device memory (HPCCOLL_GPU_AWARE_MPI=yes)"),
        (
            {"TEST_GPU_AWARE": "auto", "TEST_PROOF": FAKE},
            f"from device memory (`hpccoll doctor --gpu-aware` has proved it for {FAKE})",
        ),
        ({"TEST_GPU_AWARE": "auto"}, f"through pinned memory ({TRY})"),
        (
            {"TEST_GPU_AWARE": "auto", "TEST_PROOF": "NVIDIA H200, CUDA 12.8"},
            "through pinned memory (it is proved for NVIDIA H200, CUDA 12.8, and not for "
            f"{FAKE}: `hpccoll doctor --gpu-aware`)",
        ),
    ],
)
@pytest.mark.parametrize("mode", ["nccl", "mpi"])
def test_whether_mpi_gets_device_memory_is_said(fail: Run, mode: str, env: dict[str, str], says: str) -> None:
    flat = "device 0 (0000:4a:00.0): MPI over 4 ranks, messages "
    over = flat if mode == "mpi" else NCCL + " of this node, messages between nodes "
    said = fail("0,0,1,1", "facts", mode=mode, **env)
    assert said == [f"{rank} batch DONE: {over}{says}{LACKS}" for rank in range(4)]


@pytest.mark.parametrize("mode", ["nccl", "mpi", "auto"], ids="in mode {}".format)  # "mpi" alone is a marker
def test_ranks_that_do_not_all_have_a_proof_have_none(fail: Run, mode: str) -> None:
    """Rank 1 says why; the others say who."""
    env = {"TEST_GPU_AWARE": "auto", "TEST_PROOF": FAKE, "TEST_NO_PROOF_ON_RANK_1": "1"}
    said = fail("0,1", "facts", mode=mode, **env)
    words = ["rank 1 says that MPI cannot have its GPU's: `hpccoll info` there", TRY]
    for rank, why in enumerate(words):
        assert said[rank].startswith(f"{rank} batch DONE: device 0 (0000:4a:00.0): ")
        idle = "staged through the host: MPI does not get its memory"
        assert f"{'messages through pinned memory' if mode == 'mpi' else idle} ({why})" in said[rank]


@pytest.mark.parametrize(
    ("planted", "words"),
    [
        ("cuLaunchKernel:700:3", "hc_sum_f32: an illegal memory access was encountered (700)"),
        ("cuModuleLoadData:2:2", "loading the kernels that add up: out of memory (2)"),
    ],
)
def test_a_sum_between_nodes_that_fails(fail: Run, planted: str, words: str) -> None:
    """Packing works on both ranks; then one of them cannot add up what it has received."""
    said = fail("0,1", "facts", mode="mpi", FAKE_CUDA_FAIL=planted, **GPU_AWARE)
    (failed,) = [line for line in said if "DONE" not in line]
    assert failed.endswith(f"batch TRANSPORT: device 0 (0000:4a:00.0): {words}")


def test_nodes_of_one_gpu_need_no_nccl_where_mpi_takes_its_memory(fail: Run) -> None:
    said = fail("0,1", "facts", mode="auto", TEST_GPU_AWARE="yes", HPCCOLL_NCCL_LIBRARY="/no/such/library")
    assert said[0].startswith("0 batch DONE: device 0 (0000:4a:00.0): MPI over 2 ranks, messages from device memory")


@pytest.mark.parametrize(
    ("mode", "layout", "small", "staged"),
    [
        ("auto", "0,0,1,1", 65536, 2), ("auto", "0,0,1,1", 0, 0), ("auto", "0,0,1,1", 1 << 30, 4),
        ("auto", "0,0", 65536, 0), ("nccl", "0,0,1,1", 65536, 0), ("staged", "0,0", 0, 4), ("mpi", "0,0", 65536, 0),
    ],
)  # fmt: skip
def test_small_batches_between_nodes_are_staged(fail: Run, mode: str, layout: str, small: int, staged: int) -> None:
    """4,000, 65,536, 65,540 and 200,000 bytes: by what all ranks know, so that all choose alike."""
    said = fail(layout, "sizes", mode=mode, TEST_SMALL=str(small))
    assert said == [f"{rank} staged {staged}, fast {4 - staged}" for rank in range(len(layout.split(",")))]


def test_nccl_takes_one_tensor_of_any_size_in_place(fail: Run) -> None:
    """Also where the buffer of several tensors would have padding (65,540 bytes): no kernel is launched."""
    said = fail("0,0", "sizes", mode="nccl", FAKE_CUDA_FAIL="cuLaunchKernel:700:1")
    assert said == [f"{rank} staged 0, fast 4" for rank in range(2)]


@pytest.mark.parametrize(
    ("why", "env"),
    [
        (SAME_GPU, {"TEST_OWN_DEVICES": "1"}),
        (NO_NCCL, {"TEST_NCCL_OF_RANK_1": "/no/such/library"}),
        (MIXED, {}),
    ],
)
def test_all_ranks_say_alike_why_nccl_cannot_be_used(
    fail: Run, build_nccl: Build, why: str, env: dict[str, str]
) -> None:
    """An error where NCCL was asked for; else the host does it, and says why."""
    env = env or {"TEST_NCCL_OF_RANK_1": str(build_nccl("-DFAKE_NCCL_VERSION=23003"))}
    assert fail("0,0", "facts", **env) == [f"{rank} batch TRANSPORT: {why}" for rank in (0, 1)]
    staged = f"device 0 (0000:4a:00.0): staged through the host: {why}"
    assert fail("0,0", "facts", mode="auto", **env) == [f"{rank} batch DONE: {staged}" for rank in (0, 1)]


@pytest.mark.parametrize(
    ("planted", "words"),
    [
        (
            "init:1:3:1",
            "rank 1 (device 0, 0000:4a:00.0): ncclCommInitRankConfig: internal error (3): no route",
        ),
        ("call:1:4:1", "rank 1 (device 0, 0000:4a:00.0): {call}: invalid argument (4): no route"),
    ],
)
@pytest.mark.parametrize(("operation", "call"), CALLS)
def test_words_of_nccl(run: Run, operation: str, call: str, planted: str, words: str) -> None:
    """Which rank, which device, which call, what NCCL says."""
    env = {"FAKE_NCCL_FAIL": planted, "FAKE_NCCL_WORDS": "no route"}
    with pytest.raises(pytest.fail.Exception, match="exit status 1") as failure:
        run("0,0", 1, 20, "auto", 0, 1, operation, mode="nccl", **env)
    assert f"(NCCL 2.28.9 on {words.format(call=call)})" in str(failure.value)


def test_a_device_that_fails(run: Run) -> None:
    with pytest.raises(pytest.fail.Exception, match="exit status 1") as failure:
        run("0,0", 1, 20, "auto", 0, 1, "broadcast", mode="staged", FAKE_CUDA_FAIL="cuMemcpyDtoHAsync_v2:700:1")
    assert "device 0 (0000:4a:00.0): copying tensors: an illegal memory access" in str(failure.value)


@pytest.mark.parametrize(
    ("planted", "of_rank_1"),
    [
        ("hang:1:0:1", "nothing moved for 0.3 s; one of its 2 ranks does not come"),
        ("async:1:6:1", "remote process exited or there was a network error (6)"),
    ],
)
@pytest.mark.parametrize("operation", [operation for operation, _ in CALLS])
def test_what_does_not_end_is_given_up(fail: Run, operation: str, planted: str, of_rank_1: str) -> None:
    """It was launched, and its batch has ended; who watches finds out, and after the abort the stream goes on."""
    said = fail("0,0", "watched", operation, FAKE_NCCL_FAIL=planted, TEST_PATIENCE_MS="300")
    for rank, words in enumerate(("nothing moved for 0.3 s", of_rank_1)):
        start = f"{rank} watch TRANSPORT: NCCL 2.28.9 on rank {rank} (device 0, 0000:4a:00.0): "
        assert said[rank].startswith(f"{start}a batch that was launched: {words}")


@pytest.mark.parametrize("operation", ["allreduce", "allgather"])
def test_patience_begins_with_the_call(fail: Run, operation: str) -> None:
    """Between two batches nothing moves for longer than anybody would wait for one."""
    assert fail("0,0", "idle", operation, FAKE_NCCL_LATE="3", TEST_PATIENCE_MS="1900") == []


def test_a_rank_that_never_comes_can_be_left(fail: Run) -> None:
    """The others' batch does not end, and nothing is left of it when they give up."""
    said = fail("0,0,0", "alone", mode="staged")
    assert said == [f"{rank} batch OK: device 0 (0000:4a:00.0): staged through the host" for rank in (0, 1)]


def test_results_are_used_again_when_they_have_been_read(fail: Run) -> None:
    assert fail("0", "results") == []


def test_devices_that_are_not_there(fail: Run) -> None:
    no_driver, nowhere, number = fail("0", "opening")
    assert nowhere.startswith("the address is on no device (bring arrays of")
    assert no_driver.startswith("the CUDA driver was not found: /no/such/file:")
    assert number.startswith("there is no device 7: this process sees 1 (CUDA_VISIBLE_DEVICES,")


@pytest.mark.parametrize("symbol", ["cuDevicePrimaryCtxRetain:2:1", "cuModuleLoadData:2:1"])
def test_a_device_that_cannot_be_used(fail: Run, symbol: str) -> None:
    said = fail("0", "opening", FAKE_CUDA_FAIL=symbol)
    assert any("device 0 (0000:4a:00.0): " in line and "out of memory (2)" in line for line in said)
