# SPDX-License-Identifier: Apache-2.0
"""The GPUs that the ranks of a World use: looked at when it is made, where a knob or a context says that there are any.

A job that moves host memory alone has neither, and never opens the driver.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hpccoll import _core
from hpccoll.checks.finding import ERROR, WARNING, Facts, Finding
from hpccoll.checks.survey import RankReport, Survey
from hpccoll.text import some_ranks

NAME = "gpu"
NVIDIA = 0
SHARING = ("NCCL_MULTI_RANK_GPU_ENABLE", "NCCL_HOSTID")
"""Who sets one of them wants two ranks on one GPU: a test on a small machine."""
ONE_EACH = "One rank a GPU: --ntasks-per-node equal to the GPUs, --gpus-per-task=1, or HPCCOLL_DEVICE=local"


def wanted(settings: Any) -> bool:
    """Whether this rank is known to use a GPU: HPCCOLL_DEVICE says so, or it has a context already."""
    if settings.device == "auto":
        return _core.current_device(NVIDIA, settings.cuda_library) >= 0
    return bool(settings.device != "none")


def sharing(env: Mapping[str, str]) -> bool:
    """Whether several ranks on one GPU are meant."""
    return any(name in env for name in SHARING)


def collect(settings: Any, place: int, env: Mapping[str, str], nccl_files: list[str]) -> Facts:
    """What this rank will use, or why it cannot. Opens the driver and, unless arrays are staged, NCCL.

    :param place: of this rank among those of its machine
    """
    driver = _core.gpu_driver(NVIDIA, settings.cuda_library)
    facts: Facts = {"named": settings.device != "auto", "staged": settings.device_mode == "staged"}
    if "missing" in driver:
        return facts | {"missing": driver["missing"], "to do": driver["to do"]}
    devices = driver["devices"]
    number = _number(settings, place, len(devices))
    if not 0 <= number < len(devices):
        remedy = "CUDA_VISIBLE_DEVICES, or the job's --gpus-per-task, says which; hpccoll info lists them"
        return facts | {
            "missing": f"there is no GPU {number}: this process sees {len(devices)}",
            "to do": remedy,
        }
    facts |= {"number": number, "count": len(devices), "pci": devices[number]["pci"]}
    facts["sharing"] = [name for name in SHARING if name in env]
    if not facts["staged"]:
        nccl = _core.nccl(NVIDIA, settings.nccl_library, nccl_files)
        facts |= {"nccl": nccl.get("version", ""), "no nccl": nccl.get("missing", "")}
    return facts


def _number(settings: Any, place: int, count: int) -> int:
    if settings.device == "auto":
        return _core.current_device(NVIDIA, settings.cuda_library)
    if settings.device == "local":
        return place % count if count else 0
    return int(settings.device)


def judge(survey: Survey) -> list[Finding]:
    """Everything below; errors where a knob named the GPU, for then it is this one and no other."""
    reports = [report for report in survey.reports if report.facts[NAME]]
    return [finding for look in (hidden, shared, mixed, without_nccl) for finding in look(reports)]


def hidden(reports: list[RankReport]) -> Iterator[Finding]:
    """A rank that cannot use its GPU."""
    for report in reports:
        facts = report.facts[NAME]
        if "missing" in facts:
            yield Finding(
                NAME,
                ERROR if facts["named"] else WARNING,
                f"rank {report.rank} on {report.host} has no GPU to use ({facts['missing']})",
                "arrays in device memory need one on every rank",
                facts["to do"][:1].upper() + facts["to do"][1:],
            )


def shared(reports: list[RankReport]) -> Iterator[Finding]:
    """Two ranks on one GPU."""
    users: dict[tuple[str, str], list[RankReport]] = {}
    for report in reports:
        if "pci" in report.facts[NAME]:
            users.setdefault((report.node, report.facts[NAME]["pci"]), []).append(report)
    for (_, pci), those in users.items():
        if len(those) < 2:
            continue
        facts = those[0].facts[NAME]
        meant = facts["staged"] or all(report.facts[NAME]["sharing"] for report in those)
        yield Finding(
            NAME,
            ERROR if facts["named"] and not meant else WARNING,
            f"{some_ranks(r.rank for r in those)} on {those[0].host} use the same GPU ({pci}) of {facts['count']}",
            "they take turns on it" + ("" if meant else ", and NCCL refuses two ranks on one GPU"),
            ONE_EACH + ("" if meant else "; who means it sets HPCCOLL_DEVICE_MODE=staged"),
        )


def mixed(reports: list[RankReport]) -> Iterator[Finding]:
    """Several versions of NCCL."""
    versions: dict[str, list[RankReport]] = {}
    for report in reports:
        if report.facts[NAME].get("nccl"):
            versions.setdefault(report.facts[NAME]["nccl"], []).append(report)
    if len(versions) > 1:
        said = "; ".join(
            f"NCCL {version} on {some_ranks(c.rank for c in those)}" for version, those in versions.items()
        )
        named = any(report.facts[NAME]["named"] for report in reports)
        yield Finding(
            NAME,
            ERROR if named else WARNING,
            said,
            "ranks with different versions of NCCL cannot speak to each other",
            "Install one version everywhere, or name one file with HPCCOLL_NCCL_LIBRARY",
        )


def without_nccl(reports: list[RankReport]) -> Iterator[Finding]:
    """No NCCL where it was to be used."""
    lacking = [report for report in reports if report.facts[NAME].get("no nccl")]
    if lacking:
        yield Finding(
            NAME,
            WARNING,
            f"{some_ranks(c.rank for c in lacking)} on {lacking[0].host}: {lacking[0].facts[NAME]['no nccl']}",
            "arrays in device memory are staged through host memory",
            "`pip install nvidia-nccl-cu12` (or -cu13), or say that it is meant: HPCCOLL_DEVICE_MODE=staged",
        )
