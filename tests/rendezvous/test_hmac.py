# SPDX-License-Identifier: Apache-2.0
"""The HMAC-SHA256 by which a rank in C authenticates itself: RFC 4231's test cases, and Python's hmac."""

import hmac
import random
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def program(build_c: Callable[..., Path]) -> Path:
    return build_c("tests/rendezvous/hmac.c", "ext/rendezvous/sha256.c")


def code(program: Path, key: bytes, text: bytes, parts: int = 1) -> str:
    done = subprocess.run([program, key.hex(), str(parts)], input=text, capture_output=True, check=True, timeout=60)
    return done.stdout.decode().strip()


@pytest.mark.parametrize(
    ("key", "text", "expected"),
    [  # RFC 4231, test cases 1 to 4
        (b"\x0b" * 20, b"Hi There", "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"),
        (b"Jefe", b"what do ya want for nothing?", "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"),
        (b"\xaa" * 20, b"\xdd" * 50, "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe"),
        (bytes(range(1, 26)), b"\xcd" * 50, "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b"),
    ],
)
def test_cases_of_the_standard(program: Path, key: bytes, text: bytes, expected: str) -> None:
    assert code(program, key, text) == expected


def test_all_lengths_around_a_block(program: Path) -> None:
    draw = random.Random(1)
    for length in [*range(50, 70), *range(115, 132), 1000, 1 << 18]:
        key, text = draw.randbytes(1 + length % 64), draw.randbytes(length)
        assert code(program, key, text, 1 + length % 5) == hmac.digest(key, text, "sha256").hex(), length
