# SPDX-License-Identifier: Apache-2.0
"""The control groups of this process: their CPU quota, and the time for which they were throttled."""

from collections.abc import Iterator
from pathlib import Path

from hpccoll import _core
from hpccoll.checks.kernel_files import read_text

ROOT = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")


def folders(root: Path = ROOT, own: Path = OWN) -> Iterator[Path]:
    """Yield the folders that may have limits of the CPU time: of this process's group and its ancestors."""
    yield root
    yield root / "cpu"
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        top = root if not controllers else root / "cpu" if "cpu" in controllers.split(",") else None
        parts = [part for part in path.split("/") if part not in ("", "..")]
        for depth in range(1, len(parts) + 1 if top else 0):
            assert top is not None
            yield top.joinpath(*parts[:depth])


def quota(root: Path = ROOT, own: Path = OWN) -> float | None:
    """Find the number of cores whose time the strictest group may use; None: no limit."""
    return _core.cpu_quota(str(root), str(own)) or None


def throttled(root: Path = ROOT, own: Path = OWN) -> float:
    """Sum up the seconds for which groups were stopped because their time was used up."""
    seconds = 0.0
    for folder in folders(root, own):
        for line in read_text(folder / "cpu.stat").splitlines():
            name, _, value = line.partition(" ")
            if name in ("throttled_usec", "throttled_time") and value.isdecimal():
                seconds += int(value) * (1e-6 if name == "throttled_usec" else 1e-9)
    return seconds
