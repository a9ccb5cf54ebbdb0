# SPDX-License-Identifier: Apache-2.0
"""Numbers in the options of commands, which argparse refuses before anything starts if they make no sense."""

import argparse
import math
from collections.abc import Callable

__all__ = ["above_zero", "whole", "wholes", "zero_or_more"]


def whole(least: int) -> Callable[[str], int]:
    """Make a reader of whole numbers from `least` on, as `type` of an option."""

    def read(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if number < least:
            raise argparse.ArgumentTypeError(f"{text!r}: a whole number of {least} or more")
        return number

    return read


def wholes(least: int) -> Callable[[str], list[int]]:
    """Make a reader of whole numbers with commas between them, as in `1,16,4608`."""
    one = whole(least)
    return lambda text: [one(word) for word in text.split(",") if word]


def _finite(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        return math.nan
    return number if math.isfinite(number) else math.nan


def above_zero(text: str) -> float:
    """Read a number above 0, as seconds between two looks.

    :raises ArgumentTypeError: it is none
    """
    if not (number := _finite(text)) > 0:
        raise argparse.ArgumentTypeError(f"{text!r}: a number above 0")
    return number


def zero_or_more(text: str) -> float:
    """Read a number that is not below 0, as seconds of computing.

    :raises ArgumentTypeError: it is none
    """
    if not (number := _finite(text)) >= 0:
        raise argparse.ArgumentTypeError(f"{text!r}: a number of 0 or more")
    return number
