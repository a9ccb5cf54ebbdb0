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


@pytest.mark.parametrize(
    ("operation", "nodes"),
    [
        ("allgather", "2"),
        *(pytest.param(name, "2", marks=pytest.mark.slow) for name in ("alltoall", "gather")),
        pytest.param("allgather", "", marks=pytest.mark.slow),
    ],
)
def test_no_memory_for_equal_rows_is_one_error_on_all_ranks(operation, nodes):
    """A rank that finds none before it counts a call without a name does not take the rows for equal."""
    script = LIMITED + (
        f"arguments = {{'gather': (1,)}}.get('{operation}', ())\n"
        f"call = lambda: hpccoll.{operation}(x, *arguments)\n"
        "for _ in range(3):\n"
        "    assert isinstance(caught(call), hpccoll.OutOfMemoryError)\n"
        "    assert hpccoll.allreduce(1.0) == size\n"
        "limit(None)\n"
        "for _ in range(3):\n"
        "    got = call()\n"
        f"    got = got[0] if '{operation}' == 'alltoall' else got\n"
        "    assert got is None or (got[0], got[-1]) == (0, 1)\n"
        "hpccoll.shutdown()\n"
        "print('fine', flush=True)\n"
    )
    status, output = job(2, script.replace("limit(96)", "limit(40)"), nodes=nodes)
    said = rf"OutOfMemoryError: {operation} '[^']+': rank 1 \([^)]*\) has no memory for its result of \d+ bytes"
    assert len(re.findall(said, output)) == 6, output
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
def test_many_small_results_of_a_rank_that_has_no_memory_at_all():
    """Not for the results, and not for what the batches themselves need: that comes from the reserve.

    Inside a node: between nodes Open MPI needs memory of its own, and copies an early message to NULL without it.
    """
    script = LIMITED + (
        "if rank == 1: limit(None)\n"
        "y = np.full(3000, float(rank))\n"
        "refused, held = 0, []\n"
        "pool = [bytes(n) for n in range(16, 512, 16) for _ in range(2000)]\n"
        "del pool[1::2]  # places inside Python's arenas\n"
        "for _ in range(3):\n"
        "    handles = [hpccoll.allgather_async(y, name=f'small{i}') for i in range(100)]\n"
        "    if rank == 1:\n"
        "        limit(0)\n"
        "        for n in (300_000, 100_000, 10_000, 3000):\n"
        "            try:\n"
        "                while True: held.append(np.empty(n, np.uint8))\n"
        "            except MemoryError: pass\n"
        "    while handles:\n"
        "        try: assert handles.pop().wait()[-1] == 1\n"
        "        except MemoryError: refused += 1\n"
        "    held.clear()\n"
        "    if rank == 1: limit(None)\n"
        "    assert hpccoll.allreduce(1.0) == size\n"
        "assert len(hpccoll.allgather(y)) == 6000\n"
        "hpccoll.shutdown()\n"
        "print('fine', refused, flush=True)\n"
    )
    status, output = job(2, script, nodes="")
    refused = re.findall(r"fine (\d+)", output)
    assert len(refused) == 2 and int(refused[0]) > 0, output
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


@pytest.mark.slow
def test_no_memory_for_copies_of_strided_arrays():
    """Messages, plans and outs of collectives: the error names what is lacking, and nothing was sent."""
    script = LIMITED + (
        "y = np.full(2, 5.0 - rank)\n"
        "if rank == 1:\n"
        "    limit(None)\n"
        "    every = np.empty(2 * x.size)[::2]\n"
        "    limit(40)\n"
        "    for call in (lambda: hpccoll.send(every, 0), lambda: hpccoll.recv(every, 0),\n"
        "                 lambda: hpccoll.send_init(every, 0), lambda: hpccoll.recv_init(every, 0),\n"
        "                 lambda: hpccoll.allreduce(x, out=every, name='sum')):\n"
        "        assert isinstance(caught(call), hpccoll.OutOfMemoryError)\n"
        "    hpccoll.send(y, 0)\n"
        "else:\n"
        "    assert hpccoll.recv(y, 1) is not None and y[0] == 4\n"
        "assert hpccoll.allreduce(1.0) == size\n"
        "hpccoll.shutdown()\n"
        "print('fine', flush=True)\n"
    )
    status, output = job(2, script, nodes="")
    for what in ("x", "out"):
        who = rf"rank 1 \(host {platform.node()}, pid \d+\)"
        assert re.search(
            rf"OutOfMemoryError: .*no memory on {who} for a contiguous copy of {what} of {64 << 20} bytes", output
        )
    assert output.count("fine") == 2, output
    assert status == 0, output


@pytest.mark.slow
@pytest.mark.parametrize("nodes", ["", "2"])
def test_no_memory_for_what_an_operation_itself_needs_comes_from_the_reserve(nodes):
    """What a scan needs: all ranks' values, where these are few."""
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
        "assert hpccoll.scan(y, name='rows', out=out)[-1] == rank\n"
        "limit(None)\n"
        "hpccoll.shutdown()\n"
        "print('fine', flush=True)\n"
    )
    status, output = job(2, script, nodes=nodes)
    assert output.count("fine") == 2, output
    assert status == 0, output


def test_no_memory_that_breaks_the_world_is_told_on_all_ranks():
    """A joined leader needs the whole result for its node, more than the reserve has."""
    script = (
        INIT
        + LIMITED.removeprefix(INIT).replace("if rank == size - 1: limit(96)\n", "")
        + (
            "if rank == 0:\n"
            "    limit(40)\n"
            "    error = caught(hpccoll.join)\n"
            "else:\n"
            "    error = caught(lambda: hpccoll.broadcast(x, 2, name='rows', out=x))\n"
            "assert isinstance(error, hpccoll.OutOfMemoryError), error\n"
            "assert isinstance(caught(hpccoll.barrier), hpccoll.BrokenWorldError)\n"
            "meet('told', size)  # mpirun ends the other ranks as soon as one has ended so\n"
            "os._exit(7)\n"
        )
    )
    _, output = job(3, script, nodes="2")
    said = (
        r"OutOfMemoryError: broadcast '' of other ranks, while this one has joined: no memory on rank 0 "
        rf"\(host {platform.node()}, pid \d+\) for "
    )
    assert len(re.findall(said, output)) == 3, output
    assert output.count("BrokenWorldError") == 3, output
