# SPDX-License-Identifier: Apache-2.0
"""Converts the arguments that torch.distributed passes to a backend: options, reductions, lists of tensors."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from hpccoll import _core, errors
from hpccoll.reductions import Reduction
from hpccoll.torch.adapter import ADAPTER

__all__ = [
    "Finish", "Tensors", "apart", "check_one_each", "copies_back", "elements", "fill", "joined", "moved", "one",
    "options", "reduced", "reduction",
]  # fmt: skip

Tensors = Sequence[torch.Tensor]
Finish = Callable[[list[Any]], None]
"""Called with the results of a work's requests, when all are done."""

_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_Op: Any = dist.ReduceOp.RedOpType
_REDUCTIONS = {
    _Op.SUM: Reduction.SUM, _Op.AVG: Reduction.AVERAGE, _Op.PRODUCT: Reduction.PRODUCT, _Op.MIN: Reduction.MIN,
    _Op.MAX: Reduction.MAX, _Op.BAND: Reduction.BAND, _Op.BOR: Reduction.BOR, _Op.BXOR: Reduction.BXOR,
    _Op.PREMUL_SUM: Reduction.SUM,
}  # fmt: skip


def options(given: Any, kind: type) -> Any:
    """Return options with all the fields of `kind`.

    torch passes a reduction in place of options, or None for the defaults.
    """
    if given is not None and not hasattr(kind, "reduceOp"):
        return given
    if hasattr(given, "reduceOp"):
        return given
    made = kind()
    if given is not None:
        made.reduceOp = dist.ReduceOp(given)
    return made


def reduction(op: Any) -> tuple[Reduction, float]:
    """Return the library's reduction, and the factor of each rank's input.

    :raises UnsupportedError: the library does not have this reduction
    """
    kind = getattr(op, "op", op)
    if kind not in _REDUCTIONS:
        raise errors.UnsupportedError(f"reduction {op} is not served by backend hpccoll")
    factor = op.__getstate__()[1] if kind == _Op.PREMUL_SUM else None
    return _REDUCTIONS[kind], 1.0 if factor is None else float(factor)


def one(tensors: Any, what: str) -> torch.Tensor:
    """Return the only tensor, which torch passes alone or in a list."""
    found = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
    if len(found) != 1:
        raise ValueError(f"{what} takes a list of one tensor, this one has {len(found)}")
    return found[0]


def check_one_each(tensors: Sequence[Any], size: int, what: str) -> None:
    """Raise ValueError unless there is one tensor (or list) per rank."""
    if len(tensors) != size:
        raise ValueError(f"{what}: {len(tensors)} tensors for {size} ranks: needs one per rank")


def reduced(tensor: torch.Tensor, rows: int = 0) -> _core.Buffer:
    """Return the memory of a contiguous tensor to compute with, as one or several rows: torch compares no shapes."""
    return ADAPTER.buffer(tensor, (rows, tensor.numel() // rows) if rows else (tensor.numel(),))


def moved(tensor: torch.Tensor) -> _core.Buffer:
    """Return the memory of a contiguous tensor to move, as one row.

    Dtypes that the library does not know are sent as integers of the same size, and ranks compare their names.
    """
    try:
        return reduced(tensor)
    except errors.UnsupportedError:
        return reduced(tensor.detach().view(_BITS[tensor.element_size()])).of(ADAPTER.dtype(tensor))


def joined(parts: Tensors, like: torch.Tensor) -> torch.Tensor:
    """Return the elements of all parts, one after another; without parts an empty tensor like `like`."""
    if not parts:
        return torch.empty(0, dtype=like.dtype, device=like.device)
    return torch.cat([ADAPTER.contiguous(p).detach().view(-1) for p in parts])


def elements(tensor: torch.Tensor, splits: Sequence[int] | None, size: int, which: str) -> list[int]:
    """Return how many elements of `tensor` go to (or come from) each rank.

    :param splits: rows per rank; without them all ranks have equal shares
    :param which: "input" or "output", for errors
    """
    rows = tensor.shape[0] if tensor.dim() else 0
    if not splits:
        if rows % size:
            raise ValueError(f"all_to_all_single: {rows} rows of {which} are not divisible by {size} ranks")
        splits = [rows // size] * size
    if len(splits) != size or sum(splits) != rows or min(splits) < 0:
        raise ValueError(f"all_to_all_single: {which} splits {splits} are not {size} counts with the sum {rows}")
    row = tensor.numel() // rows if rows else 0
    return [n * row for n in splits]


def apart(output: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    """Return a contiguous tensor for the result: new memory if `output` is in the middle of a contiguous `source`.

    NCCL reduces and scatters in place, so torch's programs give this rank's share of the input as the output.
    """
    at = output.data_ptr() - source.data_ptr()
    inside = -output.nbytes < at < source.nbytes and at != 0  # at the beginning, the library works in place
    return torch.empty(output.shape, dtype=output.dtype, device=output.device) if inside else ADAPTER.contiguous(output)


def copies_back(sources: Tensors, targets: Tensors) -> Finish | None:
    """Return a function that copies each source to its target at the end; None if each source is its target."""
    pairs = [(s, t) for s, t in zip(sources, targets, strict=True) if s is not t]
    if not pairs:
        return None

    def finish(_: list[Any]) -> None:
        for source, target in pairs:
            target.data.copy_(source)

    return finish


def fill(parts: Tensors, received: np.ndarray | torch.Tensor, rows: np.ndarray | None, what: str) -> None:
    """Copy the received elements into tensors, one after another.

    :param rows: elements that came from each rank, if there is one tensor per rank
    :raises ResultSizeError: the tensors have another number of elements
    """
    if not parts:
        return
    sizes = [p.numel() for p in parts]
    total = received.nbytes // parts[0].element_size()
    if sizes != (rows.tolist() if rows is not None else [total]):
        sent = f"{rows.tolist()} (one count per rank)" if rows is not None else total
        raise errors.ResultSizeError(f"{what}: {sent} elements were sent, the outputs have {sizes}")
    if not total:
        return
    flat, at = ADAPTER.from_bytes(received, parts[0], (total,)), 0
    for part, count in zip(parts, sizes, strict=True):
        part.data.copy_(flat[at : at + count].view(part.shape))
        at += count
