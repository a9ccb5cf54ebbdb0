# SPDX-License-Identifier: Apache-2.0
"""A GPU without a framework: streams, copies, device memory, pinned memory, and arrays that hpccoll accepts.

HPCCOLL_CUDA_LIBRARY may name another driver (the tests' fake one).
"""

import ctypes
import sys
from ctypes import c_size_t, c_uint64, c_void_p
from pathlib import Path
from typing import Any

import numpy as np

from hpccoll.tools.doctor.cuda_driver import Driver, DriverError

NON_BLOCKING = 1


class Gpu(Driver):
    """Device 0 as the current device, with a stream; without a GPU the program ends with a sentence."""

    def __init__(self) -> None:
        try:
            super().__init__()
            self.use(0)
            self.stream = self.new_stream()
        except DriverError as error:
            sys.exit(f"{Path(sys.argv[0]).name} needs a GPU: {error}")

    def new_stream(self) -> c_void_p:
        stream = c_void_p()
        self("cuStreamCreateWithPriority", ctypes.byref(stream), NON_BLOCKING, 0)
        return stream

    def wait(self, stream: c_void_p | None = None) -> None:
        self("cuStreamSynchronize", stream or self.stream)

    def free(self, address: int) -> None:
        self("cuMemFree_v2", c_uint64(address))

    def pinned(self, nbytes: int) -> np.ndarray:
        """Allocate pinned memory, which the GPU copies without the processor; it lives as long as the process."""
        memory = c_void_p()
        self("cuMemHostAlloc", ctypes.byref(memory), c_size_t(nbytes), 1)
        return np.ctypeslib.as_array(ctypes.cast(memory, ctypes.POINTER(ctypes.c_uint8)), (nbytes,))

    def copy(self, to: int, source: int, nbytes: int) -> None:
        self("cuMemcpyDtoDAsync_v2", c_uint64(to), c_uint64(source), c_size_t(nbytes), self.stream)

    def up(self, to: int, x: np.ndarray, stream: c_void_p | None = None) -> None:
        source = c_void_p(x.ctypes.data)
        self("cuMemcpyHtoDAsync_v2", c_uint64(to), source, c_size_t(x.nbytes), stream or self.stream)

    def down(self, x: np.ndarray, source: int, stream: c_void_p | None = None) -> None:
        to = c_void_p(x.ctypes.data)
        self("cuMemcpyDtoHAsync_v2", to, c_uint64(source), c_size_t(x.nbytes), stream or self.stream)

    def put(self, to: int, x: np.ndarray) -> None:
        self.up(to, x)
        self.wait()

    def get(self, x: np.ndarray, source: int) -> np.ndarray:
        self.down(x, source)
        self.wait()
        return x

    def array(self, values: np.ndarray) -> "Array":
        return Array(self, values)


class Array:
    """An array in device memory that hpccoll accepts; the GPU's stream writes it."""

    def __init__(self, gpu: Gpu, values: np.ndarray) -> None:
        self.gpu, self.shape, self.dtype = gpu, values.shape, values.dtype
        self.address = gpu.allocate(values.nbytes)
        gpu.put(self.address, values)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self.shape, "typestr": self.dtype.str, "data": (self.address, False), "version": 3,
            "stream": self.gpu.stream.value,
        }  # fmt: skip

    def values(self) -> np.ndarray:
        return self.gpu.get(np.empty(self.shape, self.dtype), self.address)
