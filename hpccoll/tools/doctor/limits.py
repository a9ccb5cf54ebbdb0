# SPDX-License-Identifier: Apache-2.0
"""Limits of a process: locked memory, open files, stack."""

import resource
from pathlib import Path

from hpccoll.checks.finding import ERROR, WARNING, Facts, Finding
from hpccoll.checks.survey import RankReport, Survey
from hpccoll.text import byte_size

NAME = "limits"
LOCKED, STACK = 64 << 20, 1 << 20
"""Bytes that RDMA registers at least, and bytes of stack that threads of BLAS need."""


def collect() -> Facts:
    """Read the soft limits; None: unlimited."""
    kinds = {
        "locked memory": resource.RLIMIT_MEMLOCK,
        "open files": resource.RLIMIT_NOFILE,
        "stack": resource.RLIMIT_STACK,
    }
    soft = {name: resource.getrlimit(kind)[0] for name, kind in kinds.items()}
    return {name: None if value == resource.RLIM_INFINITY else value for name, value in soft.items()} | {
        "rdma": any(Path("/sys/class/infiniband").glob("*"))
    }


def judge(survey: Survey) -> list[Finding]:
    """Find limits below the needs of a job of this size."""
    return [finding for report in survey.leaders for finding in _of(report, max(survey.size, len(survey.reports)))]


def _of(report: RankReport, ranks: int) -> list[Finding]:
    facts, found = report.facts[NAME], []
    locked, files, stack = facts["locked memory"], facts["open files"], facts["stack"]
    if facts["rdma"] and locked is not None and locked < LOCKED:
        found.append(
            Finding(
                NAME,
                ERROR,
                f"{report.host}: locked memory is limited to {byte_size(locked)} (ulimit -l), and there is an RDMA "
                "device",
                "verbs cannot register buffers: MPI fails, or falls back to TCP without a message",
                "`ulimit -l unlimited` in the job, in /etc/security/limits.conf, LimitMEMLOCK=infinity for slurmd",
            )
        )
    needed = 256 + 4 * ranks
    if files is not None and files < needed:
        found.append(
            Finding(
                NAME,
                WARNING,
                f"{report.host}: {files} open files at most (ulimit -n); {ranks} ranks over TCP can need {needed}",
                "connections are refused when the limit is reached, in the middle of the run",
                "`ulimit -n 65536`, or LimitNOFILE for slurmd and sshd",
            )
        )
    if stack is not None and stack < STACK:
        found.append(
            Finding(
                NAME,
                WARNING,
                f"{report.host}: the stack is limited to {byte_size(stack)} (ulimit -s)",
                "numerical libraries die with a segmentation fault",
                "`ulimit -s 8192` or more",
            )
        )
    return found
