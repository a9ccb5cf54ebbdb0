# SPDX-License-Identifier: Apache-2.0
"""Arbitrary bytes on the control edges and as headers of point-to-point messages, under sanitizers.

The quick run needs no libFuzzer: it mutates the conversations below (tests/core/fuzz/mutate.c).
"""

import random
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

SOURCES = (
    "tests/core/fuzz/mutate.c",
    "tests/transport/p2p/fuzz_p2p.c",
    "ext/transport/p2p/*.c",
    "ext/transport/shm/segment.c",
    "ext/transport/shm/control_segment.c",
    "ext/transport/shm/cores.c",
    "ext/transport/shm/cells.c",
    "ext/transport/shm/byte_ring.c",
    "ext/transport/control/control.c",
    "ext/transport/net/local.c",
    "ext/transport/net/bundle.c",
    "ext/core/reserve.c",
    "ext/core/status.c",
)
SANITIZE = ("-O0", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer")
EAGER, RTS, CTS, FIN, CELL, RNDV, GONE, CREDIT = range(1, 9)
RECEIVE, SEND, MESSAGE, RAW, TURN, WITHDRAW, FORGET = range(7)
SIZES = (0, 1, 300, 8 << 10, (8 << 10) + 1, 33000, 70000, 300000)
NEAR, FAR = 1, 2
"""A rank of the node, whose bytes come through a ring, and one of another node, whose bytes come over a net."""


def receive(size: int, peer: int, tag: int = 0) -> bytes:
    return bytes([RECEIVE, SIZES.index(size), peer + 1, 0, tag])


def send(size: int, peer: int) -> bytes:
    return bytes([SEND, SIZES.index(size), peer, 0, 0])


def header(kind: int, *, to: int = 0, number: int = 0, size: int = 0, cell: int = 0, tag: int = 0) -> bytes:
    return struct.pack("<BBHIIIIIQ", 0xA7, kind, cell, 0, tag, to, number, 0, size)


def message(peer: int, content: bytes, repairs: int = 7) -> bytes:
    return bytes([MESSAGE, peer % 2, repairs]) + len(content).to_bytes(2, "little") + content


def raw(peer: int, content: bytes) -> bytes:
    return bytes([RAW, peer % 2, 0]) + len(content).to_bytes(2, "little") + content


def conversations() -> list[bytes]:
    """What ranks say to each other when all is well, and what nobody should say."""
    turn = bytes([TURN])
    found = []
    for peer in (NEAR, FAR):
        eager = message(peer, header(EAGER, size=300) + bytes(300))
        found += [
            receive(300, peer) + eager,
            eager + receive(300, -1) + turn,
            eager + eager + bytes([FORGET, 0]) + receive(1, peer),
            receive(70000, peer) + message(peer, header(RTS, number=9, size=6)),
            send(33000, peer) + message(peer, header(CTS, to=1, number=3)) + turn + turn,
            send(33000, peer) + message(peer, header(FIN, to=1)) + message(peer, header(CTS, to=1)),
            send(300, peer) + message(peer, header(CREDIT, size=332), 0) + send(8 << 10, peer),
            send(300, peer) * 3 + message(peer, header(CREDIT, size=1 << 63), 0) + send(300, peer),
            receive(33000, peer)
            + message(peer, header(RTS, number=9, size=5))
            + b"".join(message(peer, header(CELL, to=1, cell=n, size=n * 9000)) for n in (1, 2, 3)),
            receive(33000, peer) + message(peer, header(RTS, size=5)) + message(peer, header(RNDV, to=1)) + turn,
            receive(33000, peer) + message(peer, header(RTS, size=5)) + message(peer, header(GONE, to=1)),
            send(70000, peer) + bytes([WITHDRAW, 0]) + message(peer, header(CTS, to=1, number=2)),
            raw(peer, (40).to_bytes(8, "little") + header(EAGER)),
            raw(peer, b"\xff" * 8 + header(EAGER)) + eager,
            raw(peer, (1 << 62).to_bytes(8, "little")) + eager,
            raw(peer, b"\0" * 64),
        ]
    found += [send(8192, 0) + receive(8192, 0), send(33000, 0) + receive(33000, 0) + turn, receive(300, -1) + turn]
    return found


def seeds() -> bytes:
    """Each conversation, and several in one; each behind its length."""
    rng, each = random.Random(1), conversations()
    several = [b"".join(rng.sample(each, 3)) for _ in range(200)]
    return b"".join(len(one).to_bytes(2, "little") + one for one in [*each, *several] if len(one) < 4096)


def run(build_c: Callable[..., Path], inputs: int, seconds: float) -> str:
    program = build_c(*SOURCES, flags=SANITIZE, name="fuzz_p2p")
    done = subprocess.run([program, str(inputs)], input=seeds(), capture_output=True, timeout=seconds)
    report = done.stderr.decode()
    assert done.returncode == 0, report[-4000:]
    assert "messages read" in report
    return report


def test_edges_and_headers(build_c: Callable[..., Path]) -> None:
    print(run(build_c, 5000, 100))


@pytest.mark.slow
@pytest.mark.timeout(1000)
def test_edges_and_headers_long(build_c: Callable[..., Path]) -> None:
    print(run(build_c, 1_000_000, 900))
