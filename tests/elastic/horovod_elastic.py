# SPDX-License-Identifier: Apache-2.0
"""Horovod's elastic example for PyTorch, as its documentation has it; the test changes the import, and nothing else."""

import os
import signal
import sys
from pathlib import Path

import horovod.torch as hvd
import torch
import torch.nn.functional as F

hvd.init()
torch.set_num_threads(1)
torch.manual_seed(42 + hvd.rank())
lr, epochs, batch_size = 0.01, 4, 4
victim = Path(sys.argv[1])

features = torch.randn(97, 6, generator=torch.Generator().manual_seed(1))
dataset = torch.utils.data.TensorDataset(features, (features.sum(1) > 0).long(), torch.arange(len(features)))
model = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2), torch.nn.LogSoftmax(1))
optimizer = torch.optim.SGD(model.parameters(), lr * hvd.size(), momentum=0.9)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters(), op=hvd.Average)
sampler = hvd.elastic.ElasticSampler(dataset, shuffle=True)


@hvd.elastic.run
def train(state):
    loss = torch.zeros(())
    for state.epoch in range(state.epoch, epochs):  # noqa: B020 - as in Horovod's documentation
        loader = torch.utils.data.DataLoader(dataset, batch_size=batch_size, sampler=state.sampler)
        for idx, (data, target, index) in enumerate(loader):
            optimizer.zero_grad()
            loss = F.nll_loss(model(data), target)
            loss.backward()
            if state.epoch == 1 and idx == 3 and hvd.rank() == 0 and not victim.exists():
                victim.write_text(str(os.getpid()))
                os.kill(os.getpid(), signal.SIGKILL)
            optimizer.step()
            taken = hvd.allgather(index, name="taken")
            state.taken = [*state.taken, *((state.epoch, int(i)) for i in taken)]
            state.sampler.record_batch(idx, batch_size)
            state.commit()
        # the number of steps is the same on all ranks, else this waits for a rank that makes one more
        state.losses = [*state.losses, float(hvd.allreduce(loss.detach(), name="loss"))]
        state.sampler.set_epoch(state.epoch + 1)


def on_state_reset():
    for group in optimizer.param_groups:
        group["lr"] = lr * hvd.size()


state = hvd.elastic.TorchState(model=model, optimizer=optimizer, sampler=sampler, epoch=0, taken=[], losses=[])
state.register_reset_callbacks([on_state_reset])
assert state._host_messages.empty()
train(state)

weights = hvd.allgather_object([p.tolist() for p in model.parameters()])
assert all(one == weights[0] for one in weights), "ranks have different weights"
assert optimizer.param_groups[0]["lr"] == lr * hvd.size(), optimizer.param_groups
assert int(os.environ["HOROVOD_RANK"]) == hvd.rank() and os.environ["HOROVOD_HOSTNAME"] == "localhost"
if hvd.rank() == 0:
    assert len(set(state.taken)) == epochs * len(dataset), len(set(state.taken))
    again = len(state.taken) - len(set(state.taken))
    assert again <= 2 * epochs, again  # of 3 ranks at most two get a sample again, at the end of an epoch
    print(f"each sample; {again} of them twice; {hvd.size()} ranks; losses {state.losses}")
