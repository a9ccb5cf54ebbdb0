# SPDX-License-Identifier: Apache-2.0
"""The CUDA driver and NCCL, which are opened at run time: their facts, or the reason why they cannot be used.

As a program it prints these as JSON, for the named parts or for both. A process that has opened the driver must not
fork, and a broken driver may hang, so :func:`probe` runs it in a child process.
"""

import ctypes
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from hpccoll import config, errors

Facts = dict[str, Any]

DRIVER = "libcuda.so.1"
PROBE_TIMEOUT_S = 60


def probe(*parts: str) -> dict[str, Facts]:
    """Facts of the "CUDA driver" and of "NCCL", or of one of them alone.

    The facts of an unusable part are {"missing": why, "to do": remedy}.
    """
    try:
        asked = subprocess.run(
            [sys.executable, "-m", "hpccoll.cuda", *parts],
            capture_output=True,
            text=True,
            timeout=PROBE_TIMEOUT_S,
            check=False,
            cwd=Path(__file__).parent.parent,  # this very package, not one in the folder of the caller
        )
    except subprocess.TimeoutExpired:
        return {"CUDA driver": missing(f"it did not answer in {PROBE_TIMEOUT_S} s", "ask whether `nvidia-smi` does")}
    if asked.returncode:
        words = asked.stderr.strip().splitlines() or [f"status {asked.returncode}"]
        return {"CUDA driver": missing(words[-1], "ask whether `nvidia-smi` works on this node")}
    found: dict[str, Facts] = json.loads(asked.stdout)
    return found


def driver_facts() -> Facts:
    """The driver's file, its CUDA version, and name and PCI address of each device."""
    facts = probe_driver(config.read().cuda_library)
    if "version" in facts:
        facts["version"] = f"CUDA {facts['version'] // 1000}.{facts['version'] % 1000 // 10}"
    return facts


def probe_driver(named: str) -> Facts:
    """See _cuda.gpu_driver. This initialises the driver: do not fork afterwards.

    :param named: its file; "": it is searched for
    """
    from hpccoll import _cuda  # a job without device memory does not load it

    return _cuda.gpu_driver(named)


def current_device(named: str) -> int:
    """The number of the device whose context this thread uses; -1: none. Opens no driver.

    :param named: the driver's file; "": the usual one
    """
    try:
        ctypes.CDLL(named or DRIVER, os.RTLD_NOLOAD | os.RTLD_NOW)
    except OSError:  # this process has no driver, so that it has no context either
        return -1
    from hpccoll import _cuda

    return _cuda.current_device(named)


def nccl_facts() -> Facts:
    """NCCL's file and version, and which of its newer functions are not in it."""
    return probe_nccl(config.read().nccl_library, [str(path) for path in packages()])


def probe_nccl(named: str, files: list[str]) -> Facts:
    """See _cuda.nccl."""
    from hpccoll import _cuda

    return _cuda.nccl(named, files)


def packages() -> list[Path]:
    """The NCCL files of the packages nvidia-nccl-cu12 and -cu13, if they are installed."""
    try:
        found = importlib.util.find_spec("nvidia.nccl")
    except ModuleNotFoundError:
        return []
    folders = found.submodule_search_locations if found else None
    return [file for folder in folders or () if (file := Path(folder, "lib", "libnccl.so.2")).exists()]


def missing(why: str, remedy: str) -> Facts:
    """Describe a missing part."""
    return {"missing": why, "to do": remedy}


PARTS = {"CUDA driver": driver_facts, "NCCL": nccl_facts}


def main() -> None:
    """Print the facts."""
    try:
        print(json.dumps({part: PARTS[part]() for part in sys.argv[1:] or PARTS}))
    except errors.HpccollError as error:
        raise SystemExit(str(error)) from None


if __name__ == "__main__":
    main()
