# SPDX-License-Identifier: Apache-2.0
"""Horovod's interface under torchrun: its processes find each other through its store, without MPI."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import os
import torch
import torch.distributed as dist
import hpccoll.torch as hvd

hvd.init()
rank, size = hvd.rank(), hvd.size()
assert (rank, size) == (int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
assert (hvd.local_rank(), hvd.local_size()) == (rank, size)
assert hvd.allreduce(torch.full((4,), float(rank)), op=hvd.Sum).tolist() == [size * (size - 1) / 2] * 4
assert hvd.allgather(torch.tensor([rank])).tolist() == list(range(size))
assert hvd.broadcast_object({{"from": rank}}, 1) == {{"from": 1}}
model = torch.nn.Linear(3, 1)
hvd.broadcast_parameters(model.state_dict(), 0)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
model(torch.randn(4, 3)).sum().backward()
optimizer.step()
weights = hvd.allgather(model.weight.detach())
assert torch.equal(weights, weights[:1].expand_as(weights))
hvd.shutdown()
hvd.init(); assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == size; hvd.shutdown()
dist.init_process_group("{backend}")
x = torch.ones(1)
dist.all_reduce(x)
assert x.item() == dist.get_world_size()
hvd.init(); assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == size; hvd.shutdown()
dist.destroy_process_group()
print(f"<rank {{rank}} of {{size}}>", flush=True)
"""


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize(("ranks", "backend"), [(2, "hpccoll"), (3, "gloo")])
def test_a_program_runs(ranks: int, backend: str, tmp_path: Path) -> None:
    """Three Worlds, one after the other, the last one inside a process group."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(backend=backend))
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", str(program)],
        text=True, timeout=150, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    for rank in range(ranks):
        assert f"<rank {rank} of {ranks}>" in done.stdout


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_one_rank_each_where_that_is_asked_for() -> None:
    program = "import hpccoll.torch as hvd; hvd.init(); print(f'<{hvd.size()} rank>', flush=True)"
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--no-python",
         sys.executable, "-c", program],
        env=os.environ | {"HPCCOLL_ALLOW_SINGLETON": "1"}, text=True, timeout=100, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("<1 rank>") == 2
