# SPDX-License-Identifier: Apache-2.0
"""Reads the small text files in which the kernel describes devices and limits (/sys, /proc)."""

from pathlib import Path

__all__ = ["read_text"]


def read_text(path: Path) -> str:
    """Read a file without the white space around its text; "" if it cannot be read."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""
