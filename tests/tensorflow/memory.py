"""The memory of results, without TensorFlow, which must not be loaded after our operations: for test_memory.py."""

import ctypes
import gc
import random
import threading
from typing import Any

import numpy as np

from hpccoll import _tensorflow, errors

MIB = 1 << 20
KINDS = {1: "u", 0: "i", 2: "f", 5: "c", 6: "b"}


class Result:
    """A result with DLPack: it returns its memory when nothing uses it any more."""

    def __init__(self, shape: tuple[int, ...], kind: int = 2, bits: int = 32) -> None:
        self.capsule, self.address = _tensorflow.new_result(shape, kind, bits)

    def __dlpack__(self, **_: Any) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


def check_shapes() -> None:
    sizes = {1: (8, 16, 32, 64), 0: (8, 16, 32, 64), 2: (16, 32, 64), 5: (64, 128), 6: (8,)}
    for kind, bits in [(kind, bits) for kind, each in sizes.items() for bits in each]:
        for shape in ((), (0,), (1,), (3, 0, 2), (5, 7), (1,) * 8, (1000, 33)):
            result = Result(shape, kind, bits)
            array = np.from_dlpack(result)
            assert result.address % 64 == 0
            assert array.shape == shape and array.dtype.kind == KINDS[kind] and 8 * array.itemsize == bits
            assert not array.size or array.ctypes.data == result.address
            ctypes.memset(result.address, 0x5A, array.nbytes)
            assert (np.ascontiguousarray(array).view(np.uint8) == 0x5A).all()
    try:
        Result((1,) * 1000)
    except errors.UnsupportedError as error:
        assert "1000 dimensions" in str(error)
    else:
        raise AssertionError("1000 dimensions pass")
    try:
        Result((1 << 50,))
    except MemoryError as error:
        assert f"{4 << 50} bytes" in str(error)
    else:
        raise AssertionError("4 PiB pass")


def check_it_comes_back() -> None:
    _tensorflow.free_idle_memory()
    result = Result((1000,))
    array = np.from_dlpack(result)
    address = result.address
    del result
    assert _tensorflow.idle_memory() == 0
    other = Result((1000,))
    assert other.address != address
    del array
    assert 4000 <= _tensorflow.idle_memory() < 5000
    assert Result((990,)).address == address  # of about the same size; nothing took it over, and it comes back, too
    dropped = [np.from_dlpack(Result((2000,)))]
    thread = threading.Thread(target=dropped.clear)
    thread.start()
    thread.join()
    assert _tensorflow.idle_memory() >= 12000
    del other
    _tensorflow.free_idle_memory()
    assert _tensorflow.idle_memory() == 0


def check_it_is_bounded() -> None:
    """Idle memory is bounded also if the sizes differ: blocks of other sizes are freed."""
    for each in (MIB, 3 * MIB, 100):
        held = [Result((each // 4,)) for _ in range(300)]
        held.clear()
        assert _tensorflow.idle_memory() <= 256 * MIB
    assert _tensorflow.idle_memory() > 200 * MIB
    before = _tensorflow.idle_memory()
    Result((100 * MIB,))  # 400 MiB, which nothing touches
    assert _tensorflow.idle_memory() == before
    _tensorflow.free_idle_memory()
    assert _tensorflow.idle_memory() == 0


def check_threads() -> None:
    """Each block is given to one result at a time."""
    wrong = []

    def work(seed: int) -> None:
        choose, held = random.Random(seed), dict[int, tuple[Result, np.ndarray]]()
        for step in range(2000):
            number = (seed << 24) + step
            result = Result((choose.choice((3, 100, 1000)),), 1, 32)
            array = np.from_dlpack(result)
            values = np.full(array.size, number, np.uint32)
            ctypes.memmove(result.address, values.ctypes.data, array.nbytes)
            held[number] = result, array
            if len(held) > 20:
                number = choose.choice(list(held))
                if (held.pop(number)[1] != number).any():
                    wrong.append(number)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gc.collect()
    assert not wrong
    _tensorflow.free_idle_memory()


for name in sorted(name for name in globals() if name.startswith("check_")):
    globals()[name]()
    print(f"{name} passed")
