# SPDX-License-Identifier: Apache-2.0
"""Explains why the C extension cannot be imported. It is imported when that fails, so it imports nothing of hpccoll."""

import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

__all__ = ["explain"]


def explain(error: ImportError) -> ImportError:
    """Explain that hpccoll._core is missing, or was built for another Python.

    :param error: the error of the import
    :returns: an error with the reason and a remedy; `error` itself if the extension exists and does not load
    """
    folder = Path(__file__).resolve().parent
    built = sorted(path.name for path in folder.glob("_core.*.so"))
    if any(folder.joinpath(f"_core{suffix}").exists() for suffix in EXTENSION_SUFFIXES):
        return error
    python = f"Python {sys.version_info.major}.{sys.version_info.minor} ({sys.executable})"
    of_others = f", only {', '.join(built)} for another one" if built else ""
    in_clone = folder.parent.joinpath("Makefile").exists()
    remedy = "`make build` (it makes .venv), or `pip install .` with this Python" if in_clone else "reinstall hpccoll"
    return ImportError(
        f"hpccoll's C extension is not built for {python}: {folder} has no _core{EXTENSION_SUFFIXES[0]}{of_others}. "
        f"What to do: {remedy}",
        name="hpccoll._core",
    )
