# SPDX-License-Identifier: Apache-2.0
"""Sums of sparse tensors: the entries of all ranks are gathered, and those of one place are added on each rank."""

from typing import Any

import numpy as np
import torch

from hpccoll import errors
from hpccoll.frontend.adapter import SparseParts
from hpccoll.frontend.sparse import SparseLayout
from hpccoll.reductions import Reduction
from hpccoll.torch.adapter import ADAPTER
from hpccoll.torch.distributed.arguments import reduction

__all__ = ["SparseSum"]


class SparseSum:
    """An allreduce of one sparse tensor, in place."""

    def __init__(self, tensor: torch.Tensor, op: Any, size: int) -> None:
        """Pack this rank's entries into `rows`.

        :param op: torch's reduction
        :param size: the number of ranks
        :raises UnsupportedError: the reduction is no sum or mean, or the tensor is in device memory
        """
        kind, factor = reduction(op)
        if kind not in (Reduction.SUM, Reduction.AVERAGE) or factor != 1.0:
            raise errors.UnsupportedError(
                f"all_reduce of a sparse tensor: SUM or AVG, not {getattr(op, 'op', op).name}"
            )
        if not tensor.is_cpu:
            raise errors.UnsupportedError("all_reduce of a sparse tensor in device memory: copy it to the host first")
        self._tensor, self._divisor = tensor, size if kind == Reduction.AVERAGE else 1
        parts = ADAPTER.sparse_parts(tensor.detach(), coalesce=True)
        indices, values = ADAPTER.to_numpy(parts.indices), ADAPTER.to_numpy(parts.values)
        self._layout = SparseLayout(indices.shape[1], values.shape[1:], values.dtype, ADAPTER.dtype(parts.values))
        self.rows = self._layout.pack(indices, values)
        self.type_name = f"{self._layout.type_name} of {list(tensor.shape)}"
        """What must be equal on all ranks."""

    def finish(self, results: list[np.ndarray]) -> None:
        """Add up the entries of all ranks, in the order of the ranks, and put them into the tensor."""
        indices, bits = self._layout.unpack(results[0])
        values = ADAPTER.from_numpy(bits, ADAPTER.dtype(self._tensor))
        if self._divisor > 1:
            values = ADAPTER.divide(values, self._divisor).to(values.dtype)
        made = ADAPTER.from_sparse(SparseParts(ADAPTER.from_numpy(indices), values), self._tensor.shape, coalesce=True)
        ADAPTER.overwrite(self._tensor, made)
