# SPDX-License-Identifier: Apache-2.0
"""Asks the PMIx server of this process, as MPI_Init will, how many ranks its node has.

Open MPI 5 brings a PMIx 5 client. With the PMIx 4 server of an older Slurm, that client learns the number in some
installations and not in others of the same versions. If it does not, MPI_Init assumes one rank on the node and fails
in local rank 2 and above. No version number tells the installations apart, so this module asks the server.
"""

import contextlib
import ctypes
import subprocess
import sys
from pathlib import Path

__all__ = ["knows_local_size", "library_in"]

PATIENCE = 20.0
NOT_FOUND = -46  # PMIX_ERR_NOT_FOUND
RANK_WILDCARD = 2**32 - 2  # asks about the whole job instead of one rank


class _Process(ctypes.Structure):
    """pmix_proc_t."""

    _fields_ = (("namespace", ctypes.c_char * 256), ("rank", ctypes.c_uint32))


def library_in(maps: str) -> str:
    """Find the PMIx client among the files that a process has loaded.

    :param maps: the text of /proc/PID/maps
    :returns: the path of the library; "" if none is loaded
    """
    files = (line.split(maxsplit=5)[-1] for line in maps.splitlines())
    return next((file for file in files if Path(file).name.startswith("libpmix.so")), "")


def knows_local_size(library: str) -> bool | None:
    """Ask the PMIx server for the number of ranks on this node, in a child process.

    A process cannot call PMIx_Init again after PMIx_Finalize, and MPI_Init of this process must call it.

    :param library: path of the PMIx client that MPI uses
    :returns: whether the server knows the number; None: unknown
    """
    with contextlib.suppress(OSError, subprocess.TimeoutExpired, ValueError):
        command = [sys.executable, str(Path(__file__)), library]
        asked = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=PATIENCE, check=False
        )
        return {0: True, NOT_FOUND: False}.get(int(asked.stdout))
    return None


def _ask(library: str) -> int:
    """Ask the server in this process; return the pmix_status_t of the answer."""
    pmix, me, value = ctypes.CDLL(library), _Process(), ctypes.c_void_p()
    if status := pmix.PMIx_Init(ctypes.byref(me), None, 0):
        return int(status)
    job = _Process(me.namespace, RANK_WILDCARD)
    status = pmix.PMIx_Get(ctypes.byref(job), b"pmix.local.size", None, ctypes.c_size_t(0), ctypes.byref(value))
    pmix.PMIx_Finalize(None, ctypes.c_size_t(0))
    return int(status)


if __name__ == "__main__":
    print(_ask(sys.argv[1]))
