# SPDX-License-Identifier: Apache-2.0
"""The data plane of tensors on a device keeps the transports' contract: the suite of the host's, over the fakes.

The suite is the transports' own (tests/transport/hierarchy_driver.c); on_device.h brings its tensors to the device and
back in a caller's stream, which nobody waits for: inputs come late, and are overwritten right behind the batch.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(120)
Run = Callable[..., str]
Build = Callable[..., Path]
TRANSPORT = Path(__file__).resolve().parents[2] / "ext" / "transport"
SOURCES = [
    *(f"ext/transport/{file.name}" for file in sorted(TRANSPORT.glob("*.c")) if file.name != "mpi.c"),
    "ext/cuda/*.c",
    "ext/core/status.c",
]
LAYOUTS = ["0", "0,0", "0,0,1,1", "0,1,2,2"]
ORDERS = ["eager", "lazy", "3"]


@pytest.fixture(scope="session")
def suite(build_c: Build) -> Path:
    return build_c(
        "tests/transport/hierarchy_driver.c", *SOURCES, flags=("-DON_DEVICE", "-ldl"), name="device_driver"
    )


@pytest.fixture
def run(suite: Path, fake_cuda: Path, fake_nccl: Path, run_c: Run) -> Run:
    """`run("0,0,1", 1, 50, mode="nccl", order="lazy")`: the suite's arguments, and how devices behave."""

    def start(*arguments: object, mode: str, order: str = "lazy", **env: str) -> str:
        env = {"HPCCOLL_NCCL_LIBRARY": str(fake_nccl), **env}
        env |= {"HPCCOLL_CUDA_LIBRARY": str(fake_cuda), "FAKE_CUDA_ORDER": order, "TEST_DEVICE_MODE": mode}
        return run_c(suite, *arguments, env=env, timeout=100)

    return start


# ---- every operation and type --------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["staged", "auto", "nccl_flat"])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_operation(run: Run, layout: str, order: str, mode: str) -> None:
    """All types, groups, joined ranks, results of the wrong size."""
    assert "60 cases" in run(layout, 1, 60, mode=mode, order=order)


@pytest.mark.parametrize("chunk", [64, 3000])
@pytest.mark.parametrize("order", ORDERS)
def test_staged_in_many_chunks(run: Run, chunk: int, order: str) -> None:
    """Slots are used again and again, and tensors are cut anywhere."""
    assert "15 cases" in run("0,0,1", 2, 15, "auto", chunk, 1, mode="staged", order=order)


@pytest.mark.parametrize("late", ["0", "2"])
@pytest.mark.parametrize("rails", [1, 2])
@pytest.mark.parametrize("layout", ["0,0", "0,0,1,1", "0,0,0,1"])
@pytest.mark.parametrize("order", ORDERS)
def test_nccl_in_many_chunks(run: Run, layout: str, order: str, rails: int, late: str) -> None:
    """Even and uneven nodes, fewer rails than ranks; the fake says when ranks call NCCL in different orders."""
    env = {"FAKE_NCCL_LATE": late} if late != "0" else {}
    arguments = (layout, 2, 25, "auto", 3000, rails, "allreduce")
    assert "25 cases" in run(*arguments, mode="nccl", order=order, **env)


@pytest.mark.parametrize("mode", ["staged", "auto"])
def test_deterministic_bits(run: Run, mode: str) -> None:
    """Equal bits fused and not, in chunks of any length."""
    assert len({run("0,1,1", 1, "bits", chunk, mode=mode) for chunk in (0, 5008, 66_000)}) == 1


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("mode", ["staged", "nccl", "nccl_flat", "auto"])
def test_many_cases(run: Run, mode: str) -> None:
    for seed in range(10, 30):
        for layout in ("0,0,0", "0,1,0,1", "0,0,0,1,1", "0,1,2,3"):
            run(layout, seed, 40, "auto", 2000 * (seed % 3), 1 + seed % 2, mode=mode, order=str(seed))


# ---- what goes wrong is said, in time ------------------------------------------------------------------


def test_words_of_nccl(suite: Path, run: Run) -> None:
    """Which rank, which device, which call, what NCCL says."""
    for planted, words in {
        "init:1:3:1": "rank 1 (device 0, 0000:4A:00.0): ncclCommInitRankConfig: internal error (3): no route",
        "call:1:4:1": "rank 1 (device 0, 0000:4A:00.0): the sum of a chunk: invalid argument (4): no route",
    }.items():
        with pytest.raises(pytest.fail.Exception, match="exit status 1") as failure:
            run(
                "0,0",
                1,
                20,
                "auto",
                0,
                1,
                "allreduce",
                mode="nccl",
                FAKE_NCCL_FAIL=planted,
                FAKE_NCCL_WORDS="no route",
            )
        assert f"(NCCL 2.28.9 on {words})" in str(failure.value)
