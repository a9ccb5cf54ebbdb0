# SPDX-License-Identifier: Apache-2.0
"""Whole jobs whose arrays lie in device memory, in orders of execution that punish who does not wait."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hpccoll.checks import gpus
from hpccoll.checks.finding import ERROR
from hpccoll.checks.survey import RankReport, Survey

pytestmark = pytest.mark.timeout(120)
JOB = Path(__file__).parent / "job.py"
RANDOM = Path(__file__).parent / "random_job.py"


def job(
    fake: Path,
    ranks: int,
    nodes: int,
    *programs: str,
    fails: bool = False,
    file: Path = JOB,
    **environment: str,
) -> str:
    """Run programs of job.py; what the ranks said."""
    launch = f"-m hpccoll run -np {ranks} --nodes {nodes} --timeout 150".split() if ranks > 1 else []
    command = [sys.executable, *launch, *[sys.executable] * (ranks > 1)]
    own = {
        "HPCCOLL_CUDA_LIBRARY": fake,
        "FAKE_CUDA_DEVICES": 2,
        "HPCCOLL_DEVICE_MODE": "staged",
        "HPCCOLL_VERBOSE": 0,
    }
    own = {name: str(value) for name, value in own.items()}
    done = subprocess.run(
        [*command, str(file), *programs],
        env={**os.environ, **own, **environment}, text=True, capture_output=True, timeout=200,
    )  # fmt: skip
    assert (done.returncode != 0) == fails, done.stdout + done.stderr
    return done.stdout + done.stderr


def slow(*values: object) -> object:
    """A layout whose code paths another one has, too: `make test-all` runs it."""
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("ranks", "nodes", "order"), [slow(1, 1, "lazy"), slow(2, 1, "3"), (3, 2, "lazy"), slow(4, 2, "eager")]
)
def test_every_operation_and_type(fake_cuda: Path, ranks: int, nodes: int, order: str) -> None:
    job(fake_cuda, ranks, nodes, "operations", FAKE_CUDA_ORDER=order)


@pytest.mark.parametrize(("ranks", "nodes", "order"), [slow(1, 1, "4"), slow(2, 2, "lazy"), (3, 2, "5")])
def test_types_streams_handles(fake_cuda: Path, ranks: int, nodes: int, order: str) -> None:
    job(
        fake_cuda, ranks, nodes, "libraries", "groups", "asynchronous", "in_place_in_order", "wrong_rows", "sets",
        "joined", "forked", FAKE_CUDA_ORDER=order, HPCCOLL_DEBUG=str(ranks % 2),
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ranks", "nodes", "mode"), [slow(1, 1, "nccl"), (2, 1, "auto"), slow(4, 2, "nccl"), slow(2, 2, "nccl_flat")]
)
def test_over_nccl(fake_cuda: Path, fake_nccl: Path, ranks: int, nodes: int, mode: str) -> None:
    """The same in processes whose communicators are the fake NCCL's; calls are taken in late."""
    said = job(
        fake_cuda, ranks, nodes, "operations", "libraries", "groups", "asynchronous", "wrong_rows", "sets",
        "joined", HPCCOLL_NCCL_LIBRARY=str(fake_nccl), HPCCOLL_DEVICE_MODE=mode, FAKE_CUDA_ORDER="lazy",
        FAKE_NCCL_LATE="2", NCCL_MULTI_RANK_GPU_ENABLE="1", HPCCOLL_VERBOSE="1",
    )  # fmt: skip
    assert re.search("hpccoll: arrays in device memory: .*NCCL", said)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ranks", "nodes", "mode", "order"),
    [
        slow(3, 1, "auto", "eager"),
        slow(4, 2, "nccl", "7"),
        slow(3, 1, "nccl", "lazy"),
        slow(4, 2, "nccl_flat", "lazy"),
    ],
)
def test_sets_with_common_ranks_call_nccl_in_one_order(
    fake_cuda: Path, fake_nccl: Path, ranks: int, nodes: int, mode: str, order: str
) -> None:
    """On devices that one communicator's calls fill: in different orders they would wait for each other for ever."""
    job(
        fake_cuda, ranks, nodes, "overlapping", HPCCOLL_NCCL_LIBRARY=str(fake_nccl), HPCCOLL_DEVICE_MODE=mode,
        FAKE_CUDA_ORDER=order, FAKE_NCCL_ALONE="1", NCCL_MULTI_RANK_GPU_ENABLE="1",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("ranks", "nodes", "order"), [slow(1, 1, "lazy"), slow(2, 1, "lazy"), slow(2, 2, "eager"), (3, 2, "8")]
)
def test_messages(fake_cuda: Path, ranks: int, nodes: int, order: str) -> None:
    """Within a node and between nodes, to a rank itself."""
    job(fake_cuda, ranks, nodes, "messages", "messages_in_order", "messages_that_fail", FAKE_CUDA_ORDER=order)


def test_a_message_from_a_device_that_fails_is_an_error(fake_cuda: Path) -> None:
    said = job(
        fake_cuda,
        2,
        1,
        "messages",
        fails=True,
        FAKE_CUDA_FAIL="cuMemcpyDtoHAsync_v2:700:3",
        FAKE_CUDA_ORDER="eager",
    )
    assert "device 0 (0000:4a:00.0): copying what is sent: an illegal memory access was encountered (700)" in said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ranks", "nodes", "mode", "order"),
    [
        (2, 1, "staged", "lazy"),
        slow(3, 2, "nccl", "lazy"),
        slow(4, 2, "auto", "3"),
        slow(3, 2, "nccl_flat", "5"),
        slow(4, 2, "staged", "eager"),
        slow(2, 2, "mpi", "lazy"),
    ],
)
def test_random_programs(fake_cuda: Path, fake_nccl: Path, ranks: int, nodes: int, mode: str, order: str) -> None:
    """Those of tests/api/random_jobs.py, for three seconds; in mode auto both ways by size."""
    job(
        fake_cuda, ranks, nodes, str(100 * ranks), "3", file=RANDOM, HPCCOLL_NCCL_LIBRARY=str(fake_nccl),
        HPCCOLL_DEVICE_MODE=mode, FAKE_CUDA_ORDER=order, NCCL_MULTI_RANK_GPU_ENABLE="1",
        HPCCOLL_GPU_AWARE_MPI="yes" if mode == "mpi" else "no", HPCCOLL_DEVICE_SMALL="64",
    )  # fmt: skip


# ---- MPI is given the device's memory, which here is the host's, so that any MPI can ------------------------

SAYS = "hpccoll: arrays in device memory: device 0 [^:]*:[^:]*:[^:]*: "


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ranks", "nodes", "mode", "way"),
    [
        (3, 1, "mpi", "MPI over 3 ranks, messages from device memory"),
        slow(4, 2, "nccl", "NCCL .* of this node, messages between nodes from device memory"),
        slow(2, 2, "auto", "MPI over 2 ranks, messages from device memory"),
    ],
)
def test_messages_from_device_memory(
    fake_cuda: Path, fake_nccl: Path, ranks: int, nodes: int, mode: str, way: str
) -> None:
    said = job(
        fake_cuda, ranks, nodes, "operations", "libraries", "groups", "asynchronous", "wrong_rows", "sets",
        "joined", HPCCOLL_NCCL_LIBRARY=str(fake_nccl), HPCCOLL_DEVICE_MODE=mode, HPCCOLL_GPU_AWARE_MPI="yes",
        HPCCOLL_DEVICE_SMALL="0", FAKE_CUDA_ORDER="lazy", NCCL_MULTI_RANK_GPU_ENABLE="1", HPCCOLL_VERBOSE="1",
    )  # fmt: skip
    assert re.search(f"{SAYS}{way} .HPCCOLL_GPU_AWARE_MPI=yes.; what that lacks is staged", said), said


@pytest.mark.slow  # tests/checks/test_proofs.py has every case, without jobs
def test_a_record_is_believed_where_it_fits(fake_cuda: Path, build_c: Callable[..., Path], tmp_path: Path) -> None:
    """As the doctor writes it, made one of this device; of another launcher or GPU, of a failure, broken."""
    file = tmp_path / "record.json"
    device = build_c("tests/tools/doctor/device.c", flags=("-shared",), name="device.so")
    knobs = {"HPCCOLL_GPU_AWARE_RECORD": str(file), "HPCCOLL_VERBOSE": "1", "HPCCOLL_DEVICE_MODE": "mpi"}
    doctor = f"-m hpccoll run -np 2 --timeout 60 {sys.executable} -m hpccoll doctor --gpu-aware".split()
    environment = {**os.environ, **knobs, "HPCCOLL_CUDA_LIBRARY": str(device)}
    subprocess.run([sys.executable, *doctor], env=environment, check=True, timeout=100)

    def said(**changes: object) -> str:
        record = json.loads(file.read_text())
        (proof,) = record["proofs"]
        place = {name: changes.pop(name) for name in list(changes) if name in proof["setup"]}
        file.write_text(json.dumps({"proofs": [proof | changes | {"setup": proof["setup"] | place}]}))
        return job(fake_cuda, 2, 1, "sets", **knobs)

    here = "fake device 0, CUDA 12.8"
    assert f"it is proved for emulated device, CUDA 12.8, and not for {here}" in said()
    assert f"from device memory (`hpccoll doctor --gpu-aware` has proved it for {here})" in said(devices=[here])
    wrong = said(proved=False, why="an allreduce ended the process")
    assert re.search("through pinned memory .tried on [-0-9]+, and an allreduce ended the process", wrong)
    wrong = said(launcher="another")
    assert re.search(f"of [-0-9]+ in {file} is for launcher another, and here is launcher .*hpccoll doctor", wrong)
    file.write_text("{")
    assert f"through pinned memory ({file} cannot be read (" in job(fake_cuda, 2, 1, "sets", **knobs)


@pytest.mark.parametrize("planted", ["another_stream_before", "another_stream_after"])
def test_a_stream_that_is_not_in_order_is_found(fake_cuda: Path, planted: str) -> None:
    assert "AssertionError" in job(fake_cuda, 1, 1, planted, fails=True, FAKE_CUDA_ORDER="lazy")


def test_what_cannot_be_moved_is_refused(fake_cuda: Path) -> None:
    job(fake_cuda, 1, 1, "refused")
    job(fake_cuda, 2, 1, "refused", FAKE_CUDA_ORDER="6")


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_device_that_fails_is_an_error(fake_cuda: Path, ranks: int) -> None:
    job(fake_cuda, ranks, 1, "broken", FAKE_CUDA_FAIL="work:700:90")


@pytest.mark.slow
def test_work_that_never_ends_has_no_result(fake_cuda: Path, fake_nccl: Path) -> None:
    """The batch was launched and its handle is done; who waits for the values must not wait for ever, nor get any."""
    said = job(
        fake_cuda, 2, 1, "given_up", fails=True, HPCCOLL_NCCL_LIBRARY=str(fake_nccl), HPCCOLL_DEVICE_MODE="nccl",
        NCCL_MULTI_RANK_GPU_ENABLE="1", HPCCOLL_STALL_LIMIT="3", FAKE_NCCL_FAIL="hang:1:0:2",
    )  # fmt: skip
    assert re.search("rank . gave up: .*NCCL", said), said
    assert "nothing failed" not in said


def test_a_job_on_the_host_opens_no_driver(tmp_path: Path) -> None:
    """Neither the driver nor NCCL is in the process, though a knob says where they would be."""
    code = (
        "import hpccoll, numpy; hpccoll.init(); hpccoll.allreduce(numpy.ones(3)); hpccoll.shutdown(); "
        "print([line for line in open('/proc/self/maps') if 'cuda' in line.lower() or 'nccl' in line])"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], text=True, capture_output=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(("ranks", "order"), [slow(1, "lazy"), slow(2, "3")])
def test_the_seams_of_pytorch(fake_cuda: Path, ranks: int, order: str) -> None:
    job(fake_cuda, ranks, 1, file=JOB.with_name("torch_job.py"), FAKE_CUDA_ORDER=order)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("environment", "said"),
    [
        (
            {"FAKE_CUDA_DEVICES": "1"},
            "ranks 0, 1 on .* use the same GPU .0000:4a:00.0. of 1: .* One rank per GPU: ",
        ),
        (
            {"FAKE_CUDA_FAIL": "cuInit:100:2"},
            "rank 0 on .* has no GPU to use .*no CUDA-capable device is detected",
        ),
        ({"HPCCOLL_DEVICE": "2"}, "rank 1 on .* has no GPU to use .there is no GPU 2: this process sees 2"),
    ],
)
def test_a_start_that_cannot_work_is_refused(fake_cuda: Path, environment: dict[str, str], said: str) -> None:
    knobs = {"HPCCOLL_DEVICE": "local", "HPCCOLL_DEVICE_MODE": "auto", **environment}
    assert re.search(f"StartError: the World was not made: .*{said}", job(fake_cuda, 2, 1, fails=True, **knobs))


@pytest.mark.slow
def test_local_gives_each_rank_its_own(fake_cuda: Path) -> None:
    """Also where one machine acts as two nodes."""
    job(fake_cuda, 2, 2, "own_device", HPCCOLL_DEVICE="local")


def test_different_versions_of_nccl_are_an_error() -> None:
    facts = {"named": True, "staged": False, "number": 0, "count": 1, "sharing": []}
    reports = [
        RankReport(rank, f"h{rank}", str(rank), {gpus.NAME: facts | {"pci": "0000:4a:00.0", "nccl": version}})
        for rank, version in enumerate(("2.28.9", "2.28.9", "2.30.4"))
    ]
    (finding,) = gpus.judge(Survey(reports))
    assert finding.severity == ERROR
    assert finding.seen == "NCCL 2.28.9 on ranks 0, 1; NCCL 2.30.4 on rank 2"
