# SPDX-License-Identifier: Apache-2.0
"""The pack kernels, compiled for the host, and their plan and launch over the fake driver, against NumPy."""

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from ctypes import c_char_p, c_double, c_float, c_int, c_int64, c_size_t, c_uint, c_uint64, c_void_p
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray
from packer import PTX, SOURCES, Order, Tensor

pytestmark = pytest.mark.timeout(120)
ROOT = Path(__file__).resolve().parents[2]
Array = NDArray[Any]
NAMES = "bool uint8 int8 uint16 int16 uint32 int32 uint64 int64 float16 bfloat16 float32 float64 complex64 complex128"
DTYPES = [np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name) for name in NAMES.split()]
FLOATS = DTYPES[9:13]
CHUNK = 8192
INLINE = 169


class Kind(ctypes.Structure):
    """hc_pack_kind."""

    _fields_ = [("kernel", c_int), ("parts", c_int), ("part_bytes", c_size_t)]


class Entry(ctypes.Structure):
    """hc_pack_entry."""

    _fields_ = [("tensor", c_uint64), ("count", c_uint64), ("place", c_uint), ("first", c_uint)]


def code(dtype: Any) -> int:
    return DTYPES.index(np.dtype(dtype))


class Job(ctypes.Structure):
    """hc_pack_job."""

    _fields_ = [
        ("buffer", c_uint64), ("table", c_uint64), ("scale", c_double), ("entries", c_uint), ("chunks", c_uint),
        ("unpack", c_uint), ("divisor", c_float), ("entry", Entry * INLINE),
    ]  # fmt: skip


class Kernel(ctypes.Structure):
    """fake_kernel."""

    _fields_ = [("argument_bytes", c_size_t), ("run", ctypes.CFUNCTYPE(None, c_void_p, c_uint, c_uint))]


class Packer:
    """The product's packer on a fake device, with a stream."""

    def __init__(self, library: ctypes.CDLL, driver: Path) -> None:
        self.library = library
        self.driver = ctypes.create_string_buffer(1 << 16)
        self.packer = ctypes.create_string_buffer(1 << 13)
        self.fake = ctypes.CDLL(str(driver))
        self.stream, context = c_void_p(), c_void_p()
        assert library.hc_driver_open(self.driver, str(driver).encode()) == 0
        self.fake.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
        self.fake.cuCtxSetCurrent(context)
        self.fake.cuStreamCreateWithPriority(ctypes.byref(self.stream), 1, 0)
        self.status = library.hc_packer_open(self.packer, self.driver, str(PTX).encode())

    def close(self) -> None:
        self.library.hc_packer_close(self.packer)

    def launch(
        self, tensors: Sequence[Array], buffer: Array, scale: float = 1.0, unpack: bool = False, divisor: float = 1.0
    ) -> int:
        table = (Tensor * max(len(tensors), 1))(*((t.ctypes.data, t.size) for t in tensors))
        dtype = code(tensors[0].dtype) if tensors else code(buffer.dtype)
        order = Order(table, len(tensors), dtype, code(buffer.dtype), unpack, scale, divisor, buffer.ctypes.data)
        return int(self.library.hc_pack_launch(self.packer, ctypes.byref(order), self.stream))

    def wait(self) -> None:
        assert self.fake.cuStreamSynchronize(self.stream) == 0


@pytest.fixture(scope="session")
def library(build_c: Callable[..., Path]) -> ctypes.CDLL:
    flags = ("-shared", "-ldl")
    built = ctypes.CDLL(str(build_c(*SOURCES, flags=flags, name="pack.so")))
    built.hc_pack_kernel_name.restype = c_char_p
    built.hc_pack_choose.argtypes = [c_int, c_int, c_double, c_double, c_int, c_void_p]
    return built


@pytest.fixture
def new_packer(
    library: ctypes.CDLL, fake_cuda: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., Packer]:
    """`new_packer(FAKE_CUDA_ORDER="lazy")`, on a driver of its own: a copy, which reads the environment now."""

    def new(**environment: str) -> Packer:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        copy = tmp_path / "libcuda.so.1"
        copy.write_bytes(fake_cuda.read_bytes())
        return Packer(library, copy)

    return new


@pytest.fixture(params=["eager", "lazy", "11"])
def packer(new_packer: Callable[..., Packer], request: pytest.FixtureRequest) -> Iterator[Packer]:
    made = new_packer(FAKE_CUDA_ORDER=request.param)
    assert made.status == 0
    yield made
    made.wait()
    made.close()


def aligned(count: int, dtype: Any, shift: int = 0) -> Array:
    """An array that begins `shift` elements after a multiple of 64 bytes."""
    dtype = np.dtype(dtype)
    raw = np.empty((count + shift) * dtype.itemsize + 64, np.uint8)
    start = -raw.ctypes.data % 64 + shift * dtype.itemsize
    return raw[start : start + count * dtype.itemsize].view(dtype)


def places(counts: Sequence[int], itemsize: int) -> tuple[list[int], int]:
    """Where each tensor begins in the buffer, in elements, and the buffer's elements."""
    per, at, starts = max(1, 16 // itemsize), 0, []
    for count in counts:
        starts.append(at)
        at += -(-count // per) * per
    return starts, at


def values(count: int, dtype: Any, seed: int) -> Array:
    rng = np.random.default_rng(seed)
    with np.errstate(over="ignore"):
        if np.dtype(dtype) in FLOATS:
            return (rng.standard_normal(count) * 10.0 ** rng.integers(-6, 6, count)).astype(dtype)
    return rng.integers(0, 256, count * np.dtype(dtype).itemsize, np.uint8).view(dtype)


def cast(x: Array, dtype: Any, scale: float, divisor: float = 1.0) -> Array:
    """What the kernel is to give: product and quotient in float32, or in float64 where one of the two is."""
    wide = np.float64 if np.float64 in (x.dtype, np.dtype(dtype)) else np.float32
    with np.errstate(all="ignore"):
        product = x.astype(wide) * wide(scale) / wide(divisor)
        return bf16_once(product) if np.dtype(dtype) == FLOATS[1] else product.astype(dtype)


def bf16_once(x: Array) -> Array:
    """bfloat16 to nearest, ties to even, straight from float64: by the distance to both neighbours."""
    if x.dtype == np.float32:
        return x.astype(FLOATS[1])
    near = x.astype(np.float32).astype(FLOATS[1])
    best, bits = near.copy(), near.view(np.uint16)
    for step in (1, 0xFFFF):
        other = (bits + np.uint16(step)).view(FLOATS[1])
        far, so_far = abs(other.astype(np.float64) - x), abs(best.astype(np.float64) - x)
        better = (far < so_far) | ((far == so_far) & (other.view(np.uint16) % 2 == 0))
        best = np.where(better & np.isfinite(other.astype(np.float32)), other, best)
    return best


COUNTS = [1, 3 * CHUNK + 5, 0, 7, CHUNK, 16, 2 * CHUNK, 1000, 31, CHUNK + 1]


def round_trip(packer: Packer, counts: Sequence[int], tensor: Any, buffer: Any, scale: float, shift: int = 0) -> None:
    tensors = [aligned(n, tensor, shift) for n in counts]
    for i, t in enumerate(tensors):
        t[:] = values(t.size, tensor, i)
    kept = [t.copy() for t in tensors]
    starts, size = places(counts, np.dtype(buffer).itemsize)
    packed = aligned(size, buffer)
    packed.view(np.uint8)[:] = 0x5A
    assert packer.launch(tensors, packed, scale) == 0
    packer.wait()
    expected = aligned(size, buffer)
    expected.view(np.uint8)[:] = 0x5A  # gaps between tensors are not touched
    for start, t in zip(starts, kept, strict=True):
        expected[start : start + t.size] = t if t.dtype == buffer and scale == 1 else cast(t, buffer, scale)
    np.testing.assert_array_equal(packed.view(np.uint8), expected.view(np.uint8))
    for t in tensors:
        t.view(np.uint8)[:] = 0xA5
    assert packer.launch(tensors, packed, scale, unpack=True) == 0
    packer.wait()
    for start, t in zip(starts, tensors, strict=True):
        part = packed[start : start + t.size]
        back = part if t.dtype == buffer and scale == 1 else cast(part, tensor, scale)
        np.testing.assert_array_equal(t.view(np.uint8), back.view(np.uint8))


@pytest.mark.parametrize("buffer", FLOATS, ids=str)
@pytest.mark.parametrize("tensor", FLOATS, ids=str)
def test_every_pair_of_floats_is_cast_and_scaled(packer: Packer, tensor: Any, buffer: Any) -> None:
    round_trip(packer, COUNTS, tensor, buffer, 1 / 3)
    round_trip(packer, [100, 20, 0, 3], tensor, buffer, 1.0)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("divisor", [0.75, 2.0, 3.0])
def test_on_the_way_out_a_sum_is_divided(packer: Packer, dtype: Any, divisor: float) -> None:
    packed, out = aligned(CHUNK + 5, dtype), aligned(CHUNK + 5, dtype)
    packed[:] = values(packed.size, dtype, 3)
    assert packer.launch([out], packed, unpack=True, divisor=divisor) == 0
    packer.wait()
    np.testing.assert_array_equal(out.view(np.uint8), cast(packed, dtype, 1.0, divisor).view(np.uint8))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_what_keeps_its_type_is_copied(packer: Packer, dtype: Any) -> None:
    round_trip(packer, COUNTS, dtype, dtype, 1.0)


def test_tensors_that_are_not_aligned(packer: Packer) -> None:
    round_trip(packer, COUNTS, np.float32, np.float32, 1.0, shift=1)
    round_trip(packer, COUNTS, np.float32, np.float16, 0.5, shift=3)


def test_more_tensors_than_arguments_hold(packer: Packer) -> None:
    """Again and again, so that tables of entries are used in turn and grow."""
    for n in (INLINE, INLINE + 1, 500, 300, 2000):
        round_trip(packer, [1 + i % 37 for i in range(n)], np.float32, np.float16, 2.0)


def test_a_table_is_not_overwritten_while_it_is_read(new_packer: Callable[..., Packer]) -> None:
    packer = new_packer(FAKE_CUDA_ORDER="lazy")
    tensors = [[np.full(4, k * 1000 + i, np.float32) for i in range(INLINE + 1)] for k in range(3)]
    buffers = [aligned(4 * (INLINE + 1), np.float32) for _ in range(3)]
    assert [packer.launch(t, b) for t, b in zip(tensors[:2], buffers[:2], strict=True)] == [0, 0]
    asked = 0
    while packer.launch(tensors[2], buffers[2]) == 1:
        asked += 1
        assert asked < 100
    assert asked > 0
    packer.wait()
    for t, b in zip(tensors, buffers, strict=True):
        np.testing.assert_array_equal(b, np.concatenate(t))
    packer.close()


def test_nothing_is_launched_for_nothing(packer: Packer) -> None:
    buffer = aligned(4, np.float32)
    assert packer.launch([], buffer) == 0
    assert packer.launch([aligned(0, np.float32)], buffer) == 0


@pytest.mark.parametrize(
    ("tensor", "buffer", "scale", "divisor"),
    [
        ("int32", "int64", 1.0, 1.0),
        ("int32", "int32", 2.0, 1.0),
        ("complex64", "float32", 1.0, 1.0),
        ("float32", "complex64", 1.0, 1.0),
        ("int32", "int32", 1.0, 3.0),
        ("float32", "float16", 1.0, 3.0),
    ],
)
def test_what_has_no_kernel(library: ctypes.CDLL, tensor: str, buffer: str, scale: float, divisor: float) -> None:
    assert library.hc_pack_choose(code(tensor), code(buffer), scale, divisor, 0, ctypes.byref(Kind())) == -13


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex_numbers_are_scaled_as_pairs(packer: Packer, dtype: str) -> None:
    x = aligned(1000, dtype)
    x[:] = values(1000, np.float64, 1) + 1j * values(1000, np.float64, 2)
    packed = aligned(1000, dtype)
    assert packer.launch([x], packed, 0.1) == 0
    packer.wait()
    real = x.real.dtype
    np.testing.assert_array_equal(packed.view(real), cast(x.view(real), real, 0.1))


def test_the_work_is_cut_evenly(library: ctypes.CDLL) -> None:
    """A tensor of a million chunks among small ones: as many chunks as elements need, in order, without a gap."""
    counts = [5, 1_000_000 * CHUNK, 0, CHUNK + 1, 1]
    tensors = (Tensor * 5)(*((16 * i, n) for i, n in enumerate(counts, 1)))
    entries, chunks, nbytes, kind = (Entry * 5)(), c_uint(), c_int64(), Kind()
    library.hc_pack_choose(code("float32"), code("float16"), 1.0, 1.0, 0, ctypes.byref(kind))
    assert library.hc_pack_kernel_name(kind.kernel) == b"hc_pack_f32_f16"
    n = library.hc_pack_plan(tensors, 5, ctypes.byref(kind), entries, ctypes.byref(chunks), ctypes.byref(nbytes))
    starts, size = places([n for n in counts if n], 2)
    assert [e.first for e in entries[:n]] == [0, 1, 1_000_001, 1_000_003]
    assert [e.place * 8 for e in entries[:n]] == starts
    assert (chunks.value, nbytes.value) == (1_000_004, 2 * size)


def test_a_tensor_without_an_address_has_its_place(library: ctypes.CDLL) -> None:
    tensors = (Tensor * 3)((64, 5), (0, 9), (128, 7))
    entries, chunks, nbytes, kind = (Entry * 3)(), c_uint(), c_int64(), Kind()
    library.hc_pack_choose(code("float32"), code("float32"), 1.0, 1.0, 0, ctypes.byref(kind))
    plan = library.hc_pack_plan(tensors, 3, ctypes.byref(kind), entries, ctypes.byref(chunks), ctypes.byref(nbytes))
    assert [(e.tensor, e.place, e.first) for e in entries[:plan]] == [(64, 0, 0), (128, 5, 1)]
    assert (chunks.value, nbytes.value) == (2, 112)


@pytest.mark.parametrize("in_table", [False, True])
@pytest.mark.parametrize("blocks", [1, 2, 3, 5, 11, 12, 13, 40])
def test_any_number_of_blocks_does_all_chunks(
    library: ctypes.CDLL, fake_cuda: Path, blocks: int, in_table: bool
) -> None:
    """Also fewer blocks than chunks, whose runs go from one tensor to the next."""
    tensors = [values(n, np.float32, n) for n in COUNTS]
    table = (Tensor * len(COUNTS))(*((t.ctypes.data, t.size) for t in tensors))
    starts, size = places(COUNTS, 2)
    packed, job, kind, nbytes = aligned(size, np.float16), Job(), Kind(), c_int64()
    packed[:] = 0
    library.hc_pack_choose(code("float32"), code("float16"), 0.5, 1.0, 0, ctypes.byref(kind))
    chunks = c_uint()
    job.entries = library.hc_pack_plan(
        table, len(COUNTS), ctypes.byref(kind), job.entry, ctypes.byref(chunks), ctypes.byref(nbytes)
    )
    job.buffer, job.scale, job.divisor, job.chunks = packed.ctypes.data, 0.5, 1.0, chunks.value
    entries = (Entry * job.entries)(*job.entry[: job.entries])
    if in_table:
        job.table = ctypes.addressof(entries)
        ctypes.memset(job.entry, 0xFF, ctypes.sizeof(job.entry))
    kernel = Kernel.in_dll(ctypes.CDLL(str(fake_cuda)), "kernel_hc_pack_f32_f16")
    assert kernel.argument_bytes == ctypes.sizeof(Job) == 4096
    kernel.run(ctypes.addressof(job), blocks, 256)
    for start, t in zip(starts, tensors, strict=True):
        np.testing.assert_array_equal(packed[start : start + t.size], cast(t, np.float16, 0.5))


@pytest.mark.parametrize("counts", [[-1], [2**62], [2**36], [2**33, 2**33]])
def test_what_is_too_large_is_refused(library: ctypes.CDLL, counts: list[int]) -> None:
    n = len(counts)
    entries, chunks, nbytes, kind = (Entry * n)(), c_uint(), c_int64(), Kind(0, 1, 4)
    tensors = (Tensor * n)(*((16, count) for count in counts))
    planned = library.hc_pack_plan(tensors, n, ctypes.byref(kind), entries, ctypes.byref(chunks), ctypes.byref(nbytes))
    assert planned == -8


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("cuModuleLoadData:2:1", b"loading the pack kernels: out of memory (2)"),
        ("cuEventCreate:2:1", b"making an event: out of memory (2)"),
    ],
)
def test_what_the_driver_says_is_quoted(new_packer: Callable[..., Packer], call: str, said: bytes) -> None:
    packer = new_packer(FAKE_CUDA_FAIL=call)
    assert packer.status == -7
    assert said in packer.packer.raw
    packer.close()


def test_a_table_that_cannot_be_had(new_packer: Callable[..., Packer]) -> None:
    packer = new_packer(FAKE_CUDA_FAIL="cuMemAlloc_v2:2:1")
    tensors, buffer = [aligned(4, np.float32)] * (INLINE + 1), aligned(4 * (INLINE + 1), np.float32)
    assert packer.launch(tensors, buffer) == -7
    assert b"device memory for the table of tensors: out of memory (2)" in packer.packer.raw
    assert packer.launch(tensors, buffer) == 0  # and the next one finds memory
    packer.wait()
    packer.close()


@pytest.mark.slow
def test_the_benchmark_verifies_what_it_times(fake_cuda: Path) -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "pack.py"), "tiny", "--repeats", "1"]
    environment = {**os.environ, "HPCCOLL_CUDA_LIBRARY": str(fake_cuda), "FAKE_CUDA_ORDER": "3"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("of one copy") == 7
