# SPDX-License-Identifier: Apache-2.0
"""Names, order and defaults of arguments are those of horovod.torch 0.28.1; what is added comes behind them."""

import inspect

import pytest

import hpccoll.torch as hvd

SCALES = "prescale_factor=1.0, postscale_factor=1.0"
HOROVOD = f"""
init(comm=None, process_sets=None)
shutdown()
is_initialized()
rank()
size()
local_rank()
local_size()
cross_rank()
cross_size()
start_timeline(file_path, mark_cycles=False)
stop_timeline()
mpi_threads_supported()
mpi_enabled()
mpi_built()
gloo_enabled()
gloo_built()
nccl_built()
ddl_built()
ccl_built()
cuda_built()
rocm_built()
ProcessSet(ranks_or_comm)
add_process_set(process_set)
remove_process_set(process_set)
allreduce(tensor, average=None, name=None, compression=none, op=None, {SCALES}, process_set)
allreduce_(tensor, average=None, name=None, op=None, {SCALES}, process_set)
allreduce_async(tensor, average=None, name=None, op=None, {SCALES}, process_set)
allreduce_async_(tensor, average=None, name=None, op=None, {SCALES}, process_set)
grouped_allreduce(tensors, average=None, name=None, compression=none, op=None, {SCALES}, process_set)
grouped_allreduce_(tensors, average=None, name=None, op=None, {SCALES}, process_set)
grouped_allreduce_async(tensors, average=None, name=None, op=None, {SCALES}, process_set)
grouped_allreduce_async_(tensors, average=None, name=None, op=None, {SCALES}, process_set)
sparse_allreduce_async(tensor, name, op, process_set)
allgather(tensor, name=None, process_set)
allgather_async(tensor, name=None, process_set)
grouped_allgather(tensors, name=None, process_set)
grouped_allgather_async(tensors, name=None, process_set)
broadcast(tensor, root_rank, name=None, process_set)
broadcast_(tensor, root_rank, name=None, process_set)
broadcast_async(tensor, root_rank, name=None, process_set)
broadcast_async_(tensor, root_rank, name=None, process_set)
alltoall(tensor, splits=None, name=None, process_set)
alltoall_async(tensor, splits=None, name=None, process_set)
reducescatter(tensor, name=None, compression=none, op=0, process_set, {SCALES})
reducescatter_async(tensor, name=None, op=0, process_set, {SCALES})
grouped_reducescatter(tensors, name=None, compression=none, op=0, process_set, {SCALES})
grouped_reducescatter_async(tensors, name=None, op=0, process_set, {SCALES})
poll(handle)
synchronize(handle)
join(device=-1)
barrier(process_set)
broadcast_parameters(params, root_rank)
broadcast_optimizer_state(optimizer, root_rank, model=None)
broadcast_object(obj, root_rank=0, name=None, process_set)
allgather_object(obj, name=None)
"""
"""`process_set` stands for the default global_process_set, `none` for Compression.none, 0 for Average."""


def shown(parameter: inspect.Parameter) -> str:
    default = parameter.default
    if default is parameter.empty or default is hvd.global_process_set:
        return parameter.name
    return f"{parameter.name}={'none' if default is hvd.Compression.none else repr(default)}".replace(
        repr(hvd.Average), "0"
    )


@pytest.mark.parametrize("signature", HOROVOD.split("\n")[1:-1])
def test_signature(signature):
    name, _, wanted = signature.rstrip(")").partition("(")
    there = ", ".join(shown(one) for one in inspect.signature(getattr(hvd, name)).parameters.values())
    assert there == wanted or there.startswith(f"{wanted}, ")


def test_numbers_of_the_reductions():
    ops = (hvd.Average, hvd.Sum, hvd.Adasum, hvd.Min, hvd.Max, hvd.Product)
    assert [op.value for op in ops] == list(range(6))
