# SPDX-License-Identifier: Apache-2.0
"""One rank has no memory left, by a real limit on its address space: what all ranks are told, and what goes on."""

import platform
import re

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
        ("gather", "2"),
        pytest.param("gather", "", marks=pytest.mark.slow),
        ("scatter", ""),
        pytest.param("scatter", "2", marks=pytest.mark.slow),
    ],
)
def test_no_memory_for_a_result_is_one_error_on_all_ranks_and_the_world_goes_on(operation, nodes):
    script = LIMITED + (
        f"operation = '{operation}'\n"
        "x = np.tile(x, 2) if operation == 'scatter' and rank == 0 else x\n"
        "splits = [0, len(x)]\n"
        "arguments = {'alltoall': (splits,), 'allgather': (), 'gather': (1,), 'scatter': (0, splits)}[operation]\n"
        "call = lambda: getattr(hpccoll, operation)(x, *arguments, name='big')\n"
        "for _ in range(2):\n"
        "    assert isinstance(caught(call), hpccoll.OutOfMemoryError)\n"
        "    assert hpccoll.allreduce(1.0) == size\n"
        "limit(None)\n"
        "got = call()\n"
        "got = got[0] if operation == 'alltoall' else got\n"
        "if rank == 1 or operation == 'allgather':\n"
        "    assert len(got) == 128 * MiB // 8 and (got[0], got[-1]) == (0, operation != 'scatter')\n"
        "else:\n"
        "    assert got is None or len(got) == 0\n"
        "hpccoll.shutdown()\n"
        "print('fine', flush=True)\n"
    )
    status, output = job(2, script, nodes=nodes)
    said = (
        rf"OutOfMemoryError: {operation} 'big': rank 1 \(host {platform.node()}, pid (\d+)\) has no memory for its "
        rf"result of {128 << 20} bytes; the World goes on"
    )
    pids = re.findall(said, output)
    assert len(pids) == 4 and len(set(pids)) == 1, output
    assert output.count("fine") == 2, output
    assert status == 0, output


@pytest.mark.parametrize("nodes", ["", pytest.param("2", marks=pytest.mark.slow)])
def test_no_memory_for_a_small_result_is_an_error_that_the_world_survives(nodes):
    """One result finds its memory in the reserve; from then on all ranks are asked."""
    script = LIMITED + (
        "y = np.full(12_000, float(rank))\n"
        "if rank == 1:\n"
        "    limit(None)\n"
        "results = [hpccoll.allgather(y, name='small')]\n"
        "if rank == 1:\n"
        "    limit(0)\n"
        "error = None\n"
        "while error is None:\n"
        "    error = caught(lambda: results.append(hpccoll.allgather(y, name='small')))\n"
        "assert isinstance(error, hpccoll.OutOfMemoryError), error\n"
        "assert all(r[0] == 0 and r[-1] == 1 for r in results)\n"
        "limit(None)\n"
        "assert hpccoll.allreduce(1.0) == size\n"
        "assert hpccoll.allgather(y, name='small')[-1] == 1\n"
        "hpccoll.shutdown()\n"
        "print('fine', len(results), flush=True)\n"
    )
    status, output = job(2, script, nodes=nodes)
    said = (
        rf"allgather 'small': rank 1 \(host {platform.node()}, pid \d+\) has no memory for its result of 192000 bytes"
    )
    assert len(re.findall(said, output)) == 2, output
    assert len(set(re.findall(r"fine (\d+)", output))) == 1 and output.count("fine") == 2, output
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
        who = rf"rank 1 \(host {platform.node()}, pid \d+\)"
        assert re.search(
            rf"OutOfMemoryError: {operation} 'sum': no memory on {who} for its result of {64 << 20}", output
        )
    assert output.count("fine") == 2, output
    assert status == 0, output


@pytest.mark.parametrize("nodes", ["", pytest.param("2", marks=pytest.mark.slow)])
def test_no_memory_that_breaks_the_world_is_told_on_all_ranks(nodes):
    """What a scan itself needs: all ranks' values, where these are few. The others have sent, or are about to."""
    script = LIMITED + (
        "y = np.full(15_000, float(rank))\n"
        "out = np.empty_like(y)\n"
        "held = []\n"
        "if rank == 1: limit(0)\n"
        "while rank == 1:\n"
        "    try:\n"
        "        held.append(np.empty(300_000, np.uint8))\n"
        "    except MemoryError:\n"
        "        break\n"
        "error = caught(lambda: hpccoll.scan(y, name='rows', out=out))\n"
        "assert isinstance(error, hpccoll.OutOfMemoryError), error\n"
        "assert isinstance(caught(hpccoll.barrier), hpccoll.BrokenWorldError)\n"
        "time.sleep(2)  # mpirun ends the other rank as soon as one has ended so\n"
        "os._exit(7)\n"
    )
    _, output = job(2, script, nodes=nodes)
    said = rf"OutOfMemoryError: scan 'rows': no memory on rank 1 \(host {platform.node()}, pid \d+\) for "
    assert len(re.findall(said, output)) == 2, output
    assert output.count("BrokenWorldError") == 2, output
