# SPDX-License-Identifier: Apache-2.0
"""Reads files that a user writes for a command: job scripts, profiles of sites, studies."""

import sys
import tomllib
from pathlib import Path
from typing import Any

LARGEST = 4 << 20
"""The most bytes of a user's file; Slurm's own limit for a job script (max_script_size)."""


class WrittenError(ValueError):
    """The file cannot be used; the text has the reason."""


def read(name: str | Path) -> str:
    """Read a file of text, line ends as they are; `-` is standard input.

    :raises WrittenError: it cannot be read, is larger than LARGEST, or is no text in UTF-8
    """
    try:
        if name == "-" and sys.stdin is None:
            raise WrittenError("-: the standard input is closed")
        if name == "-":
            data = sys.stdin.buffer.read(LARGEST + 1)
        else:
            with Path(name).open("rb") as file:
                data = file.read(LARGEST + 1)
        if len(data) > LARGEST:
            raise WrittenError(f"{name}: more than {LARGEST >> 20} MiB, which nobody writes by hand")
        return data.decode()
    except OSError as error:
        raise WrittenError(f"{name}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise WrittenError(f"{name}: no text in UTF-8") from None


def toml(text: str, name: str | Path) -> dict[str, Any]:
    """Read TOML.

    :param name: the name of the file, for messages
    :raises WrittenError: it is no TOML
    """
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise WrittenError(f"{name}: {error}") from None
    except RecursionError:
        raise WrittenError(f"{name}: arrays or tables are nested too deeply") from None
