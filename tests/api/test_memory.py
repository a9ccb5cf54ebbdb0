# SPDX-License-Identifier: Apache-2.0
"""One rank has no memory left, by a real limit on its address space: what all ranks are told, and what goes on."""

import platform

import pytest
from test_jobs import INIT, job

pytestmark = pytest.mark.timeout(180)

LIMITED = INIT + (
    "import resource\n"
    "MiB = 1 << 20\n"
    "x = np.full(64 * MiB // 8, float(rank))\n"
    "hpccoll.barrier()\n"
    "def limit(left):\n"
    "    pages = int(open('/proc/self/statm').read().split()[0])\n"
    "    soft = -1 if left is None else pages * resource.getpagesize() + left * MiB\n"
    "    resource.setrlimit(resource.RLIMIT_AS, (soft, -1))\n"
    "def caught(call):\n"
    "    try:\n"
    "        call()\n"
    "    except hpccoll.HpccollError as error:\n"
    "        print(f'{type(error).__name__}: {error}', flush=True)\n"
    "        return error\n"
    "if rank == size - 1: limit(96)\n"
)


@pytest.mark.parametrize(
    ("operation", "nodes"),
    [
        ("alltoall", "2"),
        pytest.param("alltoall", "", marks=pytest.mark.slow),
        pytest.param("allgather", "", marks=pytest.mark.slow),
        pytest.param("allgather", "2", marks=pytest.mark.slow),
    ],
)
def test_no_memory_for_a_result_is_one_error_on_all_ranks_and_the_world_goes_on(operation, nodes):
    script = LIMITED + (
        f"call = lambda: hpccoll.{operation}(x, splits, name='big') if splits else hpccoll.{operation}(x, name='big')\n"
        f"splits = [0, len(x)] if '{operation}' == 'alltoall' else None\n"
        "for _ in range(2):\n"
        "    assert isinstance(caught(call), hpccoll.OutOfMemoryError)\n"
        "    assert hpccoll.allreduce(1.0) == size\n"
        "limit(None)\n"
        "got = call()\n"
        "got = got[0] if splits else got\n"
        "assert len(got) == (0 if splits and rank == 0 else 2 * len(x))\n"
        "assert splits and rank == 0 or (got[0], got[-1]) == (0, 1)\n"
        "hpccoll.shutdown()\n"
        "print('fine', flush=True)\n"
    )
    status, output = job(2, script, nodes=nodes)
    said = (
        f"OutOfMemoryError: {operation} 'big': rank 1 ({platform.node()}) has no memory for its result of "
        f"{128 << 20} bytes; the World goes on"
    )
    assert output.count(said) == 4, output
    assert output.count("fine") == 2, output
    assert status == 0, output


@pytest.mark.slow
def test_no_memory_for_a_result_that_the_call_makes():
    """Nothing was sent: the rank may call again, and the others have only waited."""
    script = LIMITED + (
        "y = np.empty_like(x) if rank == 0 else None\n"
        "if rank == 1:\n"
        "    limit(40)\n"
        "    for call in (hpccoll.allreduce, hpccoll.broadcast, hpccoll.scan):\n"
        "        error = caught(lambda: call(x, name='sum'))\n"
        "        assert isinstance(error, hpccoll.OutOfMemoryError) and isinstance(error, MemoryError)\n"
        "    caught(lambda: hpccoll.allreduce(x[::2], name='sum', out=np.empty(1)))\n"
        "    assert hpccoll.allreduce(x, name='sum', out=x) is x\n"
        "else:\n"
        "    assert hpccoll.allreduce(x, name='sum', out=y)[0] == 1\n"
        "hpccoll.shutdown()\n"
        "print('fine', flush=True)\n"
    )
    status, output = job(2, script)
    for operation in ("allreduce", "broadcast", "scan"):
        said = f"{operation} 'sum': no memory on rank 1 ({platform.node()}) for its result of {64 << 20} bytes"
        assert f"OutOfMemoryError: {said}" in output, output
    assert output.count("fine") == 2, output
    assert status == 0, output


@pytest.mark.parametrize("nodes", ["", pytest.param("2", marks=pytest.mark.slow)])
def test_no_memory_that_breaks_the_world_is_told_on_all_ranks(nodes):
    """The root of a gather: the other ranks have sent, or are about to."""
    script = LIMITED + (
        "error = caught(lambda: hpccoll.gather(x, 1, name='rows'))\n"
        "assert isinstance(error, hpccoll.OutOfMemoryError), error\n"
        "assert isinstance(caught(hpccoll.barrier), hpccoll.BrokenWorldError)\n"
        "os._exit(7)\n"
    )
    _, output = job(2, script, nodes=nodes)
    said = (
        f"OutOfMemoryError: gather 'rows': no memory on rank 1 ({platform.node()}) for its result of {128 << 20} bytes"
    )
    assert output.count(said) == 2, output
    assert output.count("BrokenWorldError") == 2, output
