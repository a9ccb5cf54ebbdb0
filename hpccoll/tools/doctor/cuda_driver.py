# SPDX-License-Identifier: Apache-2.0
"""The CUDA driver through ctypes, for programs that need plain device memory, as the trial of `--gpu-aware` does.

hpccoll's own interface to the driver (hpccoll.cuda, ext/cuda) gives memory to the data plane only. Here MPI gets memory
that hpccoll has never touched, through the few functions needed for it, in a process that may crash. A process that has
opened the driver must not fork, so it is used in separate processes.
"""

import ctypes
from typing import Any

from hpccoll import config


class DriverError(Exception):
    """The driver is not there, or a call of it failed; the text says which."""


class Driver:
    """The CUDA driver (HPCCOLL_CUDA_LIBRARY, or libcuda.so.1), initialised."""

    def __init__(self) -> None:
        try:
            self.library = ctypes.CDLL(config.read().cuda_library or "libcuda.so.1")
        except OSError as error:
            raise DriverError(str(error)) from None
        self("cuInit", 0)

    def __call__(self, name: str, *arguments: Any) -> None:
        """Call a function of the driver; DriverError unless it returns 0."""
        status: int = getattr(self.library, name)(*arguments)
        if status:
            text = ctypes.c_char_p()
            self.library.cuGetErrorString(status, ctypes.byref(text))
            raise DriverError(f"{name}: {(text.value or b'').decode() or f'status {status}'}")

    def count(self) -> int:
        """Count the devices that this process may use."""
        count = ctypes.c_int()
        self("cuDeviceGetCount", ctypes.byref(count))
        return count.value

    def cuda(self) -> str:
        """Return the newest CUDA that the driver supports, as "12.8"."""
        version = ctypes.c_int()
        self("cuDriverGetVersion", ctypes.byref(version))
        return f"{version.value // 1000}.{version.value % 1000 // 10}"

    def describe(self, number: int) -> dict[str, str]:
        """PCI address and name of a device."""
        device, bus, name = ctypes.c_int(), ctypes.create_string_buffer(32), ctypes.create_string_buffer(128)
        self("cuDeviceGet", ctypes.byref(device), number)
        self("cuDeviceGetPCIBusId", bus, 32, device)
        self("cuDeviceGetName", name, 128, device)
        return {"pci": bus.value.decode().lower(), "name": name.value.decode()}

    def use(self, number: int) -> None:
        """Make a device the current one."""
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self("cuDeviceGet", ctypes.byref(device), number)
        self("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self("cuCtxSetCurrent", context)

    def allocate(self, nbytes: int) -> int:
        """Allocate memory on the current device and return its address."""
        address = ctypes.c_uint64()
        self("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(nbytes))
        return address.value

    def to_device(self, address: int, data: Any) -> None:
        """Copy a NumPy array to device memory."""
        self(
            "cuMemcpyHtoD_v2",
            ctypes.c_uint64(address),
            ctypes.c_void_p(data.ctypes.data),
            ctypes.c_size_t(data.nbytes),
        )

    def to_host(self, data: Any, address: int) -> None:
        """Copy device memory to a NumPy array."""
        self(
            "cuMemcpyDtoH_v2",
            ctypes.c_void_p(data.ctypes.data),
            ctypes.c_uint64(address),
            ctypes.c_size_t(data.nbytes),
        )
