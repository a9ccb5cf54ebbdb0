# SPDX-License-Identifier: Apache-2.0
"""The data plane of tensors on a device keeps the transports' contract: the suite of the host's, over the fakes."""

from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(120)
Run = Callable[..., str]
TRANSPORT = Path(__file__).resolve().parents[2] / "ext" / "transport"
SOURCES = [
    *(f"ext/transport/{file.name}" for file in sorted(TRANSPORT.glob("*.c")) if file.name != "mpi.c"),
    "ext/cuda/*.c",
    "ext/core/status.c",
]
LAYOUTS = ["0", "0,0", "0,0,1,1", "0,1,2,2"]
ORDERS = ["eager", "lazy", "3"]


@pytest.fixture(scope="session")
def suite(build_c: Callable[..., Path]) -> Path:
    return build_c(
        "tests/transport/hierarchy_driver.c", *SOURCES, flags=("-DON_DEVICE", "-ldl"), name="device_driver"
    )


@pytest.fixture
def run(suite: Path, fake_cuda: Path, run_c: Run) -> Run:
    """`run("0,0,1", 1, 50, order="lazy")`: the suite's arguments, the order in which streams run."""

    def start(*arguments: object, order: str = "lazy", **env: str) -> str:
        env |= {"HPCCOLL_CUDA_LIBRARY": str(fake_cuda), "FAKE_CUDA_ORDER": order}
        return run_c(suite, *arguments, env=env, timeout=100)

    return start


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_staged_every_operation(run: Run, layout: str, order: str) -> None:
    """All types, groups, joined ranks, results of the wrong size; inputs come late, and are overwritten early."""
    assert "80 cases" in run(layout, 1, 80, order=order)


@pytest.mark.parametrize("chunk", [64, 3000])
@pytest.mark.parametrize("order", ORDERS)
def test_staged_in_many_chunks(run: Run, chunk: int, order: str) -> None:
    """Slots are used again and again, and tensors are cut anywhere."""
    assert "15 cases" in run("0,0,1", 2, 15, "auto", chunk, 1, order=order)


def test_staged_deterministic_bits(run: Run) -> None:
    """Equal bits fused and not, in chunks of any length."""
    assert len({run("0,1,1", 1, "bits", chunk) for chunk in (0, 5008, 66_000)}) == 1
