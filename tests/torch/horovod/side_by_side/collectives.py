# SPDX-License-Identifier: Apache-2.0
"""Questions about collectives: values, types and shapes of results, handles and gradients."""

import warnings
from collections.abc import Callable
from typing import Any

import torch
from asking import DTYPES, OPS, RANK, SIZE, ask, hvd, tensor

# ---- values of the collectives --------------------------------------------------------------------------


@ask(*(f"{op} {dtype}" for op in OPS for dtype in DTYPES))
def allreduce(case: str) -> Any:
    op, dtype = case.split()
    return [hvd.allreduce(tensor(*shape, dtype=dtype), op=getattr(hvd, op)) for shape in ((7,), (2, 3), ())]


@ask(*(f"{op} {dtype}" for op in ("Average", "Sum") for dtype in DTYPES[:5]))
def allreduce_with_factors(case: str) -> Any:
    op, dtype = case.split()
    x = tensor(7, dtype=dtype) * 3
    factors = {"prescale_factor": 0.5, "postscale_factor": 1.5}
    return hvd.allreduce(x, op=getattr(hvd, op), **factors), hvd.allreduce_(x, op=getattr(hvd, op), **factors)


@ask("True", "False", "None")
def average(value: str) -> Any:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        result = hvd.allreduce(tensor(4), average={"True": True, "False": False, "None": None}[value])
    return result, sorted({warning.category.__name__ for warning in seen})


@ask("allreduce_", "allreduce_async_", "broadcast_", "broadcast_async_")
def in_place(name: str) -> Any:
    x = tensor(5)
    result = getattr(hvd, name)(x, **({"root_rank": SIZE - 1} if "broadcast" in name else {}))
    result = hvd.synchronize(result) if "async" in name else result
    return result is x, x


@ask("grouped_allreduce_", "grouped_allreduce_async_")
def group_in_place(name: str) -> Any:
    group = [tensor(5), tensor(2, 3, seed=1)]
    result = getattr(hvd, name)(group, op=hvd.Sum)
    result = hvd.synchronize(result) if "async" in name else result
    return [one is x for one, x in zip(result, group, strict=True)], result, group


@ask("allreduce", "allgather", "reducescatter")
def group(name: str) -> Any:
    tensors = [tensor(SIZE + 1, 2), tensor(2 * SIZE, dtype="int64", seed=1)]
    result = getattr(hvd, f"grouped_{name}")(tensors)
    return result, hvd.synchronize(getattr(hvd, f"grouped_{name}_async")(tensors))


@ask(*DTYPES)
def allgather(dtype: str) -> Any:
    return hvd.allgather(tensor(RANK, 2, dtype=dtype)), hvd.synchronize(hvd.allgather_async(tensor(3, dtype=dtype)))


@ask(*DTYPES)
def broadcast(dtype: str) -> Any:
    return [hvd.broadcast(tensor(2, 3, dtype=dtype), root) for root in range(SIZE)]


@ask(*DTYPES)
def alltoall(dtype: str) -> Any:
    even = hvd.alltoall(tensor(2 * SIZE, 2, dtype=dtype))
    splits = torch.arange(SIZE, dtype=torch.int32) + RANK
    x = tensor(int(splits.sum()), 2, dtype=dtype)
    return even, hvd.alltoall(x, splits), hvd.synchronize(hvd.alltoall_async(x, splits))


@ask("list", "int64", "async, even")
def alltoall_of_splits(kind: str) -> Any:
    if kind == "async, even":
        return hvd.synchronize(hvd.alltoall_async(tensor(SIZE)))
    return hvd.alltoall(tensor(SIZE), [1] * SIZE if kind == "list" else torch.ones(SIZE, dtype=torch.int64))


@ask(*(f"{op} {dtype}" for op in OPS for dtype in ("int32", "float16", "float32", "int8")))
def reducescatter(case: str) -> Any:
    op, dtype = case.split()
    return [hvd.reducescatter(tensor(n, 2, dtype=dtype), op=getattr(hvd, op)) for n in (SIZE, SIZE + 1, 1)]


@ask(*(f"{op} {dtype}" for op in ("Average", "Sum") for dtype in ("int32", "float32")))
def reducescatter_with_factors(case: str) -> Any:
    op, dtype = case.split()
    x = tensor(4 * SIZE, dtype=dtype) * 3
    return hvd.reducescatter(x, op=getattr(hvd, op), prescale_factor=0.5, postscale_factor=1.5)


@ask()
def sparse_allreduce() -> Any:
    rows = torch.tensor([[RANK, RANK + 1]])
    x = torch.sparse_coo_tensor(rows, tensor(2, 3), (SIZE + 1, 3))
    return [hvd.sparse_allreduce_async(x, name="rows", op=op)() for op in (hvd.Sum, hvd.Average)]


@ask("none", "fp16")
def compression(name: str) -> Any:
    how = getattr(hvd.Compression, name)
    small, context = how.compress(tensor(4))
    whole, untouched = how.compress(tensor(4, dtype="int32"))
    return (
        [small, how.decompress(small, context), how.decompress(whole, untouched)],
        [hvd.allreduce(tensor(4, dtype=dtype), compression=how) for dtype in ("float32", "float64", "int32")],
        hvd.grouped_allreduce([tensor(4)], compression=how),
        hvd.reducescatter(tensor(SIZE), compression=how),
    )


@ask("one dimension", "a power of two", "scaled")
def adasum(case: str) -> Any:
    x = tensor(7) * (2.0 if case == "scaled" else 1.0)
    return hvd.allreduce(x[:4] if case == "a power of two" else x, op=hvd.Adasum)


@ask(
    "allreduce",
    "allgather",
    "broadcast",
    "alltoall",
    "reducescatter",
    "grouped_allreduce",
    "grouped_allgather",
)
def no_elements(name: str) -> Any:
    x = torch.zeros(0, 3)
    more = {"root_rank": 0} if name == "broadcast" else {}
    return getattr(hvd, name)([x] if "grouped" in name else x, **more)


@ask("allreduce", "allgather", "broadcast", "reducescatter")  # Horovod's alltoall of one crashes
def a_scalar(name: str) -> Any:
    return getattr(hvd, name)(torch.tensor(1.0 + RANK), **({"root_rank": 0} if name == "broadcast" else {}))


@ask("allreduce", "allreduce_", "allgather", "broadcast", "broadcast_", "alltoall", "reducescatter")
def a_transposed_tensor(name: str) -> Any:
    x = tensor(3, SIZE).t()
    result = getattr(hvd, name)(x, **({"root_rank": 0} if "broadcast" in name else {}))
    return result, x


# ---- handles --------------------------------------------------------------------------------------------


@ask()
def a_handle() -> Any:
    handle = hvd.allreduce_async(tensor(4), name="polled")
    types = [type(handle).__mro__[-2].__name__, type(hvd.poll(handle)).__name__]
    result = hvd.synchronize(handle)
    return types, result


@ask("poll", "synchronize")
def a_number_that_is_no_handle(name: str) -> Any:
    return getattr(hvd, name)(987654)


@ask()
def out_of_order() -> Any:
    handles = {i: hvd.allreduce_async(tensor(4, seed=i), name=f"order {i}", op=hvd.Sum) for i in range(8)}
    order = range(8) if RANK % 2 else reversed(range(8))
    done = {i: hvd.synchronize(handles[i]) for i in order}
    return [done[i] for i in range(8)]


# ---- gradients ------------------------------------------------------------------------------------------


@ask("Average", "Sum", "Min", "Product")
def gradient_of_allreduce(op: str) -> Any:
    return gradient(lambda x: hvd.allreduce(x, op=getattr(hvd, op), prescale_factor=0.5))


@ask("allgather", "grouped_allreduce", "grouped_allgather", "alltoall", "alltoall with splits", "broadcast")
def gradient_of(name: str) -> Any:
    splits = torch.tensor([2 * SIZE - SIZE + 1] + [1] * (SIZE - 1), dtype=torch.int32)
    calls = {
        "grouped_allreduce": lambda x: hvd.grouped_allreduce([x, x * 2])[1],
        "grouped_allgather": lambda x: hvd.grouped_allgather([x, x * 2])[1],
        "alltoall with splits": lambda x: hvd.alltoall(x, splits)[0],
        "broadcast": lambda x: hvd.broadcast(x, SIZE - 1),
    }
    return gradient(calls.get(name) or getattr(hvd, name))


@ask("Average", "Sum")
def gradient_of_reducescatter(op: str) -> Any:
    how = {"op": getattr(hvd, op), "postscale_factor": 0.5}
    return gradient(lambda x: hvd.grouped_reducescatter([x], **how)[0]), gradient(lambda x: hvd.reducescatter(x, **how))


def gradient(call: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    x = tensor(2 * SIZE, 2).requires_grad_()
    y = call(x)
    y.backward(tensor(*y.shape, seed=9))
    return y.requires_grad, x.grad
