# SPDX-License-Identifier: Apache-2.0
"""The GPUs that the ranks of a World use, checked when the World is made, if a knob or a context asks for them.

A job without GPU arrays has neither, and never opens the driver.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from hpccoll import cuda
from hpccoll.checks.finding import ERROR, WARNING, Facts, Finding
from hpccoll.checks.survey import RankReport, Survey
from hpccoll.compared import Compared
from hpccoll.text import capitalized, some_ranks

NAME = "gpu"
SHARING = ("NCCL_MULTI_RANK_GPU_ENABLE", "NCCL_HOSTID")
"""Variables by which a user allows two ranks on one GPU, as in a test on a small machine."""
ONE_EACH = "One rank per GPU: --ntasks-per-node equal to the GPUs, --gpus-per-task=1, or HPCCOLL_DEVICE=local"


def wanted(settings: Any) -> bool:
    """Return whether this rank uses a GPU: HPCCOLL_DEVICE names one, or the process has a CUDA context."""
    if settings.device == "auto":
        return cuda.current_device(settings.cuda_library) >= 0
    return bool(settings.device != "none")


def sharing(env: Mapping[str, str]) -> bool:
    """Return whether the user allows several ranks on one GPU."""
    return any(name in env for name in SHARING)


def collect(settings: Any, place: int, env: Mapping[str, str], nccl_files: list[str]) -> Facts:
    """Find the GPU that this rank will use, or why it cannot use one. Opens the driver and, unless staged, NCCL.

    :param settings: the rank's config.Config
    :param place: number of this rank among those of its machine
    :param nccl_files: where to look for NCCL before the system's search path
    :returns: "missing" and "to do" if there is no GPU, else its number, PCI address and NCCL's version
    """
    driver = cuda.probe_driver(settings.cuda_library)
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
        nccl = cuda.probe_nccl(settings.nccl_library, nccl_files)
        facts |= {"nccl": nccl.get("version", ""), "no nccl": nccl.get("missing", "")}
    return facts


def _number(settings: Any, place: int, count: int) -> int:
    if settings.device == "auto":
        return cuda.current_device(settings.cuda_library)
    if settings.device == "local":
        return place % count if count else 0
    return int(settings.device)


def suspicious(seen: Compared[Facts], machines: Compared[Any]) -> bool:
    """Whether `judge` could find anything: a cheap test first, because a job may have many thousand ranks.

    :param seen: the result of `collect` on each rank, {} if it was not called
    :param machines: equal on ranks of one machine
    """
    facts = [one for one in seen.values if one]
    if (
        any("missing" in one or one.get("no nccl") for one in facts)
        or len({one.get("nccl") or "" for one in facts}) > 1
    ):
        return True
    addresses = seen.map(lambda one: one.get("pci"))
    used = [
        (machine, address)
        for machine, address in zip(_indices(machines), _indices(addresses), strict=True)
        if addresses.values[address] is not None
    ]
    return len(set(used)) < len(used)


def _indices(compared: Compared[Any]) -> list[int]:
    return [0] * compared.size if compared.of is None else compared.of.tolist()


def judge(survey: Survey) -> list[Finding]:
    """Apply all rules below. Findings are errors where a knob named the GPU, because no other one may be used then."""
    reports = [report for report in survey.reports if report.facts[NAME]]
    return [finding for look in (hidden, shared, mixed, without_nccl) for finding in look(reports)]


def hidden(reports: list[RankReport]) -> Iterator[Finding]:
    """Find ranks that cannot use their GPU."""
    for report in reports:
        facts = report.facts[NAME]
        if "missing" in facts:
            yield Finding(
                NAME,
                ERROR if facts["named"] else WARNING,
                f"rank {report.rank} on {report.host} has no GPU to use ({facts['missing']})",
                "arrays in device memory need one on every rank",
                capitalized(facts["to do"]),
            )


def shared(reports: list[RankReport]) -> Iterator[Finding]:
    """Find ranks that use the same GPU."""
    users: dict[tuple[str, str], list[RankReport]] = {}
    for report in reports:
        if "pci" in report.facts[NAME]:
            users.setdefault((report.node, report.facts[NAME]["pci"]), []).append(report)
    for (_, pci), group in users.items():
        if len(group) < 2:
            continue
        facts = group[0].facts[NAME]
        meant = facts["staged"] or all(report.facts[NAME]["sharing"] for report in group)
        yield Finding(
            NAME,
            ERROR if facts["named"] and not meant else WARNING,
            f"{some_ranks(r.rank for r in group)} on {group[0].host} use the same GPU ({pci}) of {facts['count']}",
            "they take turns on it" + ("" if meant else ", and NCCL refuses two ranks on one GPU"),
            ONE_EACH + ("" if meant else "; if this is meant, HPCCOLL_DEVICE_MODE=staged"),
        )


def mixed(reports: list[RankReport]) -> Iterator[Finding]:
    """Find different versions of NCCL in one job."""
    versions: dict[str, list[RankReport]] = {}
    for report in reports:
        if report.facts[NAME].get("nccl"):
            versions.setdefault(report.facts[NAME]["nccl"], []).append(report)
    if len(versions) > 1:
        seen = "; ".join(
            f"NCCL {version} on {some_ranks(c.rank for c in group)}" for version, group in versions.items()
        )
        named = any(report.facts[NAME]["named"] for report in reports)
        yield Finding(
            NAME,
            ERROR if named else WARNING,
            seen,
            "ranks with different versions of NCCL cannot communicate",
            "Install one version everywhere, or name one file with HPCCOLL_NCCL_LIBRARY",
        )


def without_nccl(reports: list[RankReport]) -> Iterator[Finding]:
    """Find ranks that would use NCCL and do not have it."""
    lacking = [report for report in reports if report.facts[NAME].get("no nccl")]
    if lacking:
        yield Finding(
            NAME,
            WARNING,
            f"{some_ranks(c.rank for c in lacking)} on {lacking[0].host}: {lacking[0].facts[NAME]['no nccl']}",
            "arrays in device memory are staged through host memory",
            "`pip install nvidia-nccl-cu12` (or -cu13), or if this is meant, HPCCOLL_DEVICE_MODE=staged",
        )
