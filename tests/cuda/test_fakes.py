# SPDX-License-Identifier: Apache-2.0
"""The fakes keep the contract of what they stand for, in every order that their streams may run in."""

from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(120)
Run = Callable[..., str]
ORDERS = ["eager", "lazy", *map(str, range(1, 9))]


@pytest.fixture(scope="session")
def driver_contract(build_c: Callable[..., Path]) -> Path:
    return build_c(
        "tests/cuda/driver_contract.c",
        "ext/cuda/driver/driver.c",
        "ext/cuda/driver/library.c",
        flags=("-ldl",),
    )


@pytest.fixture(scope="session")
def nccl_contract(build_c: Callable[..., Path]) -> Path:
    return build_c(
        "tests/cuda/nccl_contract.c",
        "ext/cuda/driver/driver.c",
        "ext/cuda/driver/library.c",
        "ext/cuda/nccl/nccl.c",
        flags=("-ldl",),
    )


@pytest.mark.parametrize("order", ORDERS)
def test_streams_and_events_keep_their_order(driver_contract: Path, fake_cuda: Path, run_c: Run, order: str) -> None:
    said = run_c(driver_contract, fake_cuda, env={"FAKE_CUDA_ORDER": order, "FAKE_CUDA_DEVICES": "2"})
    assert said == "12080, 2 devices\n"


def test_work_is_not_done_before_its_time(driver_contract: Path, fake_cuda: Path, run_c: Run) -> None:
    run_c(driver_contract, fake_cuda, "late", env={"FAKE_CUDA_ORDER": "lazy"})


@pytest.mark.parametrize("order", ["eager", "lazy"])
def test_an_error_of_work_comes_later_and_stays(driver_contract: Path, fake_cuda: Path, run_c: Run, order: str) -> None:
    run_c(
        driver_contract, fake_cuda, "broken",
        env={"FAKE_CUDA_ORDER": order, "FAKE_CUDA_FAIL": "work:700:2"},
    )  # fmt: skip


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("order", ["eager", "lazy", "7"])
def test_nccl_between_processes(
    nccl_contract: Path, fake_cuda: Path, fake_nccl: Path, run_c: Run, ranks: int, order: str
) -> None:
    run_c(nccl_contract, fake_cuda, fake_nccl, ranks, "all", env={"FAKE_CUDA_ORDER": order})


@pytest.mark.parametrize(
    ("planted", "said"),
    [
        ("init:1:3:1", "init: status 3 (internal error)"),
        ("call:1:4:2", "status 4 (invalid argument), calls 2, stuck 0"),
        ("async:1:6:2", "status 6 (remote process exited or there was a network error), calls 2, stuck 1"),
        ("hang:1:0:2", "status 0 (no error), calls 2, stuck 1"),
    ],
)
def test_planted_failures_end_by_abort(
    nccl_contract: Path, fake_cuda: Path, fake_nccl: Path, run_c: Run, planted: str, said: str
) -> None:
    env = {"FAKE_NCCL_FAIL": planted, "FAKE_CUDA_ORDER": "lazy"}
    assert run_c(nccl_contract, fake_cuda, fake_nccl, 2, "failing", env=env) == said + "\n"


@pytest.mark.parametrize("order", ["eager", "lazy", "7"])
def test_two_communicators_in_one_order_share_a_device(
    nccl_contract: Path, fake_cuda: Path, fake_nccl: Path, run_c: Run, order: str
) -> None:
    env = {"FAKE_NCCL_ALONE": "1", "FAKE_CUDA_ORDER": order}
    run_c(nccl_contract, fake_cuda, fake_nccl, 3, "in_order", env=env)


def test_two_communicators_in_different_orders_are_found(
    nccl_contract: Path, fake_cuda: Path, fake_nccl: Path, run_c: Run
) -> None:
    with pytest.raises(pytest.fail.Exception, match="called in different orders on two ranks"):
        run_c(nccl_contract, fake_cuda, fake_nccl, 3, "crossed", env={"FAKE_NCCL_ALONE": "1"})
