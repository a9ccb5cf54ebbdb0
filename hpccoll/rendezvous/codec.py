# SPDX-License-Identifier: Apache-2.0
"""The values that ranks exchange before there is a World, as bytes: JSON, so that reading them executes nothing."""

import json
from collections.abc import Sequence
from typing import Any

__all__ = ["LIMIT", "decode", "decode_all", "encode"]

LIMIT = 256 << 20
"""Bytes of the longest value that is read."""


def encode(value: Any) -> bytes:
    """Write a value.

    :param value: None, a bool, an int, a float, a str, or a list or a dict of such values; the keys of a dict are str
    :raises TypeError: it contains a value of another type, which JSON would change or refuse
    """
    _check(value)
    return json.dumps(value, separators=(",", ":")).encode()


def decode(data: bytes) -> Any:
    """Read a value.

    :raises ValueError: the bytes are not what `encode` writes
    """
    if len(data) > LIMIT:
        raise ValueError(f"{len(data)} bytes, and no value has more than {LIMIT}")
    try:
        return json.loads(str(data, "utf-8"))
    except RecursionError:
        raise ValueError("its lists are nested too deep") from None


def decode_all(parts: Sequence[bytes]) -> list[Any]:
    """Read many values that ranks of this job wrote, in one call of the JSON decoder, because a call is expensive.

    :raises ValueError: the bytes are not what `encode` writes
    """
    values: list[Any] = decode(b"[" + b",".join(parts) + b"]")
    if len(values) != len(parts):
        raise ValueError(f"{len(values)} values in {len(parts)} parts")
    return values


def _check(value: Any) -> None:
    if isinstance(value, list):
        for one in value:
            _check(one)
    elif isinstance(value, dict):
        for key, one in value.items():
            if type(key) is not str:
                raise TypeError(f"ranks exchange JSON, whose keys are text, and not {key!r}")
            _check(one)
    elif value is not None and type(value) not in (bool, int, float, str):
        raise TypeError(f"ranks exchange JSON, and not a {type(value).__name__} ({value!r})")
