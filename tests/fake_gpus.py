# SPDX-License-Identifier: Apache-2.0
"""The fake driver and the fake NCCL (tests/cuda/fake), as shared objects, for tests of every language."""

from collections.abc import Callable
from pathlib import Path

import pytest

Build = Callable[..., Path]
SHARED = ("-shared", "-Wl,--no-undefined")
DRIVER = tuple(f"tests/cuda/fake/{name}.c" for name in ("cuda", "module", "pack_host", "sum_host"))
NCCL = ("tests/cuda/fake/nccl.c", "tests/cuda/fake/comm.c", "tests/cuda/fake/segment.c")
ARITHMETIC = ("ext/transport/kernels/*.c", "ext/core/reserve.c", "ext/core/status.c")


@pytest.fixture(scope="session")
def fake_cuda(build_c: Build) -> Path:
    """libcuda.so.1."""
    return build_c(*DRIVER, flags=SHARED, name="fake-cuda.so")


@pytest.fixture(scope="session")
def build_nccl(build_c: Build, fake_cuda: Path) -> Build:
    """`build_nccl("-DFAKE_NCCL_OLD")`: libnccl.so.2, whose calls are work in streams of the fake driver."""

    arithmetic = build_c(*ARITHMETIC, flags=SHARED, name="fake-arithmetic.so")

    def build(*flags: str) -> Path:
        linked = ("-Wl,--no-as-needed", str(fake_cuda), str(arithmetic), "-lrt")
        return build_c(*NCCL, flags=(*SHARED, *flags, *linked), name="fake-nccl.so")

    return build


@pytest.fixture(scope="session")
def fake_nccl(build_nccl: Build) -> Path:
    return build_nccl()
