# SPDX-License-Identifier: Apache-2.0
"""The name of this machine: equal on processes that can share memory."""

from __future__ import annotations

import os
import socket
from pathlib import Path

__all__ = ["machine_name"]

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
SHARED_MEMORY = Path("/dev/shm")


def machine_name() -> str:
    """Name the host, its boot and its /dev/shm, of which containers on one host may have several."""
    boot = BOOT_ID.read_text().strip()
    return f"{socket.gethostname()} (boot {boot}, /dev/shm {os.stat(SHARED_MEMORY).st_dev:x})"
