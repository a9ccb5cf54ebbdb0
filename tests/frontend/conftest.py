# SPDX-License-Identifier: Apache-2.0
"""The front ends that the contract tests run with, behind one interface, and a job that lasts for one file."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hpccoll.horovod as hvd

sys.path.insert(0, str(Path(__file__).parent))

import numpy_front_end

DTYPES = (
    "bool uint8 int8 int16 int32 int64 uint16 uint32 uint64 float16 bfloat16 float32 float64 complex64 complex128"
).split()


class NumpyFront:
    """Variables of numpy_front_end."""

    name = "numpy"
    adapter: Any = numpy_front_end.ADAPTER
    operations: Any = numpy_front_end.OPERATIONS
    compression = numpy_front_end.COMPRESSION
    dtypes = [name for name in DTYPES if name != "bfloat16"]  # noqa: RUF012

    def tensor(self, values: Any, dtype: str = "float32") -> Any:
        return np.array(values).astype(dtype)

    def array(self, tensor: Any) -> np.ndarray:
        """Return the values, in a dtype that NumPy has."""
        return np.array(self.adapter.to_dense(tensor))

    def sparse(self, indices: Any, values: Any, shape: tuple[int, ...]) -> Any:
        """Return a sparse tensor: row i of `indices` says where values[i] lies."""
        return numpy_front_end.SparseArray(np.array(indices), self.tensor(values), shape)

    def parameter(self, values: Any, dtype: str = "float32") -> Any:
        return numpy_front_end.Variable(self.tensor(values, dtype))

    def backward(self, parameter: Any, gradient: Any) -> None:
        """Run a backward pass that adds `gradient` (an array) to the parameter's gradient."""
        parameter.add_gradient(gradient)

    def optimizer(self, named: dict[str, Any], **options: Any) -> Any:
        """Make an optimizer for plain gradient descent with rate 1."""
        return numpy_front_end.DistributedSGD(list(named.values()), 1.0, list(named.items()), **options)


class TorchFront(NumpyFront):
    """Parameters of PyTorch."""

    name = "torch"
    dtypes = DTYPES

    def __init__(self) -> None:
        import torch

        import hpccoll.torch
        from hpccoll.torch.adapter import ADAPTER

        torch.set_num_threads(1)
        self.torch, self.adapter = torch, ADAPTER
        self.operations, self.compression = hpccoll.torch, hpccoll.torch.Compression

    def tensor(self, values: Any, dtype: str = "float32") -> Any:
        return self.torch.from_numpy(np.array(values)).to(getattr(self.torch, dtype))

    def array(self, tensor: Any) -> np.ndarray:
        dense = tensor.detach().to_dense() if tensor.is_sparse else tensor.detach()
        return (dense.double() if dense.dtype is self.torch.bfloat16 else dense).numpy().copy()

    def sparse(self, indices: Any, values: Any, shape: tuple[int, ...]) -> Any:
        where = self.torch.tensor(np.array(indices).T)
        return self.torch.sparse_coo_tensor(where, self.tensor(values), shape, check_invariants=True)

    def parameter(self, values: Any, dtype: str = "float32") -> Any:
        return self.torch.nn.Parameter(self.tensor(values, dtype))

    def backward(self, parameter: Any, gradient: Any) -> None:
        parameter.backward(self.torch.as_tensor(gradient, dtype=parameter.dtype))

    def optimizer(self, named: dict[str, Any], **options: Any) -> Any:
        names = {"passes": "backward_passes_per_step", "predivide": "gradient_predivide_factor"}
        sgd = self.torch.optim.SGD(named.values(), lr=1.0)
        options = {names.get(name, name): value for name, value in options.items()}
        return self.operations.DistributedOptimizer(sgd, list(named.items()), **options)


@pytest.fixture(scope="session", params=[NumpyFront, TorchFront], ids=lambda front: front.name)
def front(request: pytest.FixtureRequest) -> NumpyFront:
    return request.param()


@pytest.fixture(scope="module")
def job() -> Iterator[None]:
    hvd.init()
    yield
    hvd.shutdown()


@pytest.fixture(scope="module", params=["all ranks", "parity", "rank 0"])
def ranks(request: pytest.FixtureRequest, job: None) -> Iterator[hvd.ProcessSet]:
    """Three kinds of sets: all ranks; those of this rank's parity; rank 0 alone, and all others."""
    if request.param == "all ranks" or hvd.size() == 1:
        yield hvd.global_process_set
        return
    groups = (
        [range(parity, hvd.size(), 2) for parity in (0, 1)]
        if request.param == "parity"
        else [[0], range(1, hvd.size())]
    )
    sets = [hvd.add_process_set(group) for group in groups]
    yield next(one for one in sets if one.included())
    for one in sets:
        hvd.remove_process_set(one)
