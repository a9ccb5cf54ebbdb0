# SPDX-License-Identifier: Apache-2.0
"""Sizes of messages as users write them: `8:64M`, `8:64M:4` (by factors of 4), `4,1K,64M`."""

import argparse
import re

UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def number(text: str) -> int:
    """Read a number of bytes with or without a unit: `64K` is 65536.

    :raises ArgumentTypeError: it is no number
    """
    match = re.fullmatch(r"(\d+)\s*([KMG]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if not match:
        raise argparse.ArgumentTypeError(f"{text!r}: a number of bytes, as 8, 64K, 1M or 2G (of 1024)")
    return int(match[1]) * UNITS[match[2].upper()]


def sizes(text: str) -> list[int]:
    """Read sizes, from small to large.

    :raises ArgumentTypeError: the text is no range and no list
    """
    if ":" not in text:
        found = sorted({number(word) for word in text.split(",")})
        if found[0] < 1:
            raise argparse.ArgumentTypeError(f"{text!r}: a size is 1 byte at least")
        return found
    first, last, *more = text.split(":")
    factor = int(more[0]) if len(more) == 1 and more[0].isdecimal() else 2 if not more else 0
    size, end = number(first), number(last)
    if factor < 2 or size < 1 or size > end:
        raise argparse.ArgumentTypeError(f"{text!r}: FIRST:LAST or FIRST:LAST:FACTOR, as 8:64M:4")
    found = []
    while size <= end:
        found.append(size)
        size *= factor
    return found


def short(count: int) -> str:
    """Write a number of bytes as `sizes` reads it."""
    for unit in ("G", "M", "K"):
        if count and count % UNITS[unit] == 0:
            return f"{count // UNITS[unit]}{unit}"
    return str(count)
