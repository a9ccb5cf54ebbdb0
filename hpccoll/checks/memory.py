# SPDX-License-Identifier: Apache-2.0
"""Shared memory: the bytes that the ranks of a node need in /dev/shm, and the bytes that are free."""

import os

from hpccoll import _core
from hpccoll.checks.finding import ERROR, WARNING, Facts, Finding
from hpccoll.checks.survey import Survey
from hpccoll.text import byte_size

NAME = "memory"
FOLDER = "/dev/shm"
REMEDY = (
    "Give it more: docker run --shm-size=1g, an emptyDir of medium Memory on /dev/shm, or as root "
    "`mount -o remount,size=1g /dev/shm`"
)


def collect() -> Facts:
    """Read the free and total bytes of the file system that holds shared memory."""
    try:
        found = os.statvfs(FOLDER)
    except OSError as error:
        return {"error": str(error)}
    return {"free": found.f_bavail * found.f_frsize, "total": found.f_blocks * found.f_frsize}


def device() -> str:
    """Return the number of the file system that holds shared memory, which containers of one host may have each."""
    try:
        return str(os.stat(FOLDER).st_dev)
    except OSError:
        return "none"


def need(local_size: int) -> int:
    """The bytes that a World reserves on a node, by the number of its ranks there."""
    return _core.node_control_bytes(local_size) + _core.node_bytes(local_size)


def judge(survey: Survey) -> list[Finding]:
    """Find nodes without memory for a World (an error), or for a second one (a warning)."""
    found = []
    for reports in survey.nodes.values():
        report, needed = reports[0], need(len(reports))
        facts = report.facts[NAME]
        if "error" in facts:
            found.append(
                Finding(
                    NAME,
                    ERROR,
                    f"{report.host}: {facts['error']}",
                    "ranks of a node share memory there",
                    REMEDY,
                )
            )
            continue
        seen = (
            f"{report.host}: {FOLDER} has {byte_size(facts['free'])} free of {byte_size(facts['total'])}; "
            f"a World of {len(reports)} ranks here needs {byte_size(needed)}"
        )
        if facts["free"] < needed:
            found.append(Finding(NAME, ERROR, seen, "hpccoll.init() will fail", REMEDY))
        elif facts["free"] < 2 * needed:
            matters = "a process set or a second World, and what MPI and NCCL put there, will not fit"
            found.append(Finding(NAME, WARNING, seen, matters, REMEDY))
    return found
