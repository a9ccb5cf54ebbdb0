# SPDX-License-Identifier: Apache-2.0
"""GPUs: how many the node has, which of them a rank sees, and their NUMA nodes.

`hpccoll doctor --gpu-aware`, a separate job step, tries whether MPI can use their memory (gpu_aware.py).
"""

from collections.abc import Mapping
from pathlib import Path

from hpccoll import config, cuda, errors
from hpccoll.checks import placement, proofs
from hpccoll.checks.finding import ERROR, NOTE, WARNING, Facts, Finding
from hpccoll.checks.survey import RankReport, Survey
from hpccoll.text import listed, some_ranks

NAME = "gpus"
DRIVER = Path("/proc/driver/nvidia/gpus")
SYS = Path("/sys/bus/pci/devices")


def collect(env: Mapping[str, str]) -> Facts:
    """Collect the node's GPUs, those that this process sees, and the variables that hide GPUs."""
    present = sorted(folder.name.lower() for folder in DRIVER.glob("*"))
    facts: Facts = {"present": present, "visible": [], "why none": "no NVIDIA driver on this node"}
    hiding = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
    facts["hidden by"] = {name: env[name] for name in hiding if name in env}
    if present:
        facts |= visible()
    facts["tried"] = recorded(env) if present else []
    return facts


def recorded(env: Mapping[str, str]) -> list[str]:
    """Read the recorded proofs about MPI and GPUs, one line each; none if a knob is wrong, which build.py reports."""
    try:
        file = config.read(env).gpu_aware_record
    except errors.HpccollError:
        return []
    tried, _ = proofs.read(proofs.files(file, env))
    return [proof.line() for proof in tried]


def visible() -> Facts:
    """Ask the driver for the GPUs that a process with this environment sees."""
    driver = cuda.probe("CUDA driver")["CUDA driver"]
    devices = [
        gpu | {"numa": numa(gpu["pci"]), "path": str((SYS / gpu["pci"]).resolve())} for gpu in driver.get("devices", [])
    ]
    return {"visible": devices, "why none": driver.get("missing", "")}


def numa(pci: str) -> int | None:
    """Read the NUMA node of a PCI device; None if the kernel does not know it."""
    try:
        number = int((SYS / pci / "numa_node").read_text())
    except (OSError, ValueError):
        return None
    return number if number >= 0 else None


def judge(survey: Survey) -> list[Finding]:
    """Find GPUs that are hidden, shared, or on another NUMA node, and note whether MPI was tried with them."""
    return _tried([report for report in survey.reports if report.facts[NAME]["visible"]]) + [
        finding
        for reports in survey.nodes.values()
        for found in (_hidden(reports), _shared(reports), _far(reports))
        for finding in found
    ]


def _tried(reports: list[RankReport]) -> list[Finding]:
    """Note whether a trial has shown that MPI can use the memory of these ranks' GPUs."""
    if not reports:
        return []
    tried = reports[0].facts[NAME].get("tried", [])
    was = f"was tried before: {listed(tried, 3)}" if tried else "was not tried"
    return [
        Finding(
            NAME,
            NOTE,
            f"GPUs on {listed(report.host for report in reports)}: whether MPI can use their memory {was}",
            "if it cannot, the job crashes or gets wrong sums; a job uses only proofs of its own MPI, GPU and driver",
            f"{proofs.REMEDY} it{' again' if tried else ''}, in a step of its own",
        )
    ]


def _hidden(reports: list[RankReport]) -> list[Finding]:
    blind = [report for report in reports if report.facts[NAME]["present"] and not report.facts[NAME]["visible"]]
    if not blind:
        return []
    facts = blind[0].facts[NAME]
    hiding = "".join(f", {name}={value!r}" for name, value in facts["hidden by"].items())
    return [
        Finding(
            NAME,
            ERROR,
            f"{blind[0].host} has {len(facts['present'])} GPUs, all hidden from {some_ranks(c.rank for c in blind)} "
            f"({facts['why none'] or 'libcuda counts none'}{hiding})",
            "a training falls back to the CPU or stops",
            "Ask the scheduler for them (--gpus-per-task, --gres); in a container --nv or --gpus all; try `nvidia-smi`",
        )
    ]


def _shared(reports: list[RankReport]) -> list[Finding]:
    """Find ranks that see only one GPU, and the same one."""
    sole: dict[str, list[int]] = {}
    for report in reports:
        seen = report.facts[NAME]["visible"]
        if len(seen) == 1:
            sole.setdefault(seen[0]["pci"], []).append(report.rank)
    return [
        Finding(
            NAME,
            WARNING,
            f"{reports[0].host}: {some_ranks(ranks)} see the same one GPU ({pci}) "
            f"of {len(reports[0].facts[NAME]['present'])}",
            "they share its memory and time; NCCL refuses two ranks on one GPU",
            "One rank per GPU: --ntasks-per-node equal to the GPUs, --gpus-per-task=1",
        )
        for pci, ranks in sole.items()
        if len(ranks) > 1
    ]


def _far(reports: list[RankReport]) -> list[Finding]:
    """Find ranks whose only GPU is on another NUMA node than their cores."""
    far = []
    for report in reports:
        seen, domains = report.facts[NAME]["visible"], report.facts[placement.NAME].get("numa", [])
        if len(seen) == 1 and seen[0]["numa"] is not None and domains and seen[0]["numa"] not in domains:
            far.append(report)
    if not far:
        return []
    gpu = far[0].facts[NAME]["visible"][0]
    return [
        Finding(
            NAME,
            WARNING,
            f"{far[0].host}: {some_ranks(c.rank for c in far)}: the cores are on another NUMA node than the GPU "
            f"({gpu['pci']} is on {gpu['numa']})",
            "copies between host and GPU cross the socket link",
            "`srun --gpu-bind=closest`, or bind the cores near each GPU (`nvidia-smi topo -m`)",
        )
    ]
