# SPDX-License-Identifier: Apache-2.0
"""`hpccoll doctor --gpu-aware`: a child tries device memory (gpu_aware.py); the verdict is printed and recorded."""

import json
import signal
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from hpccoll import config, inherited
from hpccoll.checks import proofs
from hpccoll.checks.finding import Facts
from hpccoll.tools.doctor import child_monitor, termination
from hpccoll.tools.doctor.identity import Identity


def record() -> Path:
    """Find the file of the verdict.

    :raises InvalidArgumentError: a knob is wrong
    """
    return proofs.files(config.read().gpu_aware_record, inherited.environment())[0]


def gpu_aware_mpi(
    process: Identity, file: Path, patience: float, as_json: bool, progress: Callable[[str, float], None]
) -> int:
    """Let a child try device memory. Rank 0, and each rank whose child died, prints and records the verdict.

    :param file: where to record it
    :returns: the exit status: on those ranks 0 if it is proved on all ranks. The other ranks end with 0, because mpirun
        kills all ranks when one ends with another status, and the verdict of rank 0 would be lost
    """
    outcome = child_monitor.Outcome()
    termination.raise_on_sigterm()
    try:
        child_monitor.run("hpccoll.tools.doctor.gpu_aware", {}, patience, progress, outcome)
        termination.ignore_sigterm()
    except termination.Terminated:
        if "proved" not in (outcome.report or {}) and outcome.status in (None, -signal.SIGTERM):
            return 1  # the child of another rank died, which that rank reports, and the launcher ends the job
    verdict = outcome.report or {}
    survived = "proved" in verdict
    if not survived:
        how = f"failed ({outcome.error})" if outcome.error else "did not return"
        how = how if outcome.status is None else f"ended the process with status {outcome.status}"
        verdict = {**verdict, "proved": False, "why": f"{outcome.stage} {how}"}
    if process.rank != 0 and survived:
        return 0
    if "about" in verdict:
        verdict |= _record(file, _proof(process, verdict))
    print(json.dumps(verdict) if as_json else _sentence(verdict), flush=True)
    return int(not verdict["proved"])


def _proof(process: Identity, verdict: Facts) -> proofs.Proof:
    about = verdict["about"]
    return proofs.Proof(
        verdict["proved"],
        verdict["why"],
        proofs.setup(about["mpi"], process.launcher, inherited.environment()),
        about["devices"],
        about["ranks"],
        about["hosts"],
        datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _record(file: Path, proof: proofs.Proof) -> Facts:
    """Write the proof where jobs will look for it; a failure to do so becomes a part of the verdict."""
    try:
        proofs.write(file, proof)
    except OSError as error:
        return {"line": proof.line(), "recorded": "", "not recorded": str(error)}
    return {"line": proof.line(), "recorded": str(file)}


def _sentence(verdict: Facts) -> str:
    if "line" not in verdict:
        return f"GPU-aware MPI: not proved: {verdict['why']}"
    if verdict["recorded"]:
        return f"GPU-aware MPI: {verdict['line']}\n    recorded in {verdict['recorded']}"
    print(f"hpccoll doctor: the verdict was not recorded: {verdict['not recorded']}", file=sys.stderr)
    return f"GPU-aware MPI: {verdict['line']}"
