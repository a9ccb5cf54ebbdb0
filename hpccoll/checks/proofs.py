# SPDX-License-Identifier: Apache-2.0
"""Records of `hpccoll doctor --gpu-aware`: whether MPI accepts pointers to GPU memory.

A record names all parts of the setup that can change the result: the MPI library, the launcher, GPU and driver, the
settings of the transports, and whether messages crossed nodes. A job with the same setup uses the record; another job
does not, and reports which part differs.
"""

import json
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from hpccoll import _core, durable
from hpccoll.text import listed

FILE = "gpu_aware_mpi.json"
KERNEL_DRIVER = Path("/proc/driver/nvidia/version")
SETTINGS = (
    "UCX_", "FI_", "PSM2_", "PSM3_", "MPICH_", "MPIR_CVAR_", "MV2_", "I_MPI_OFFLOAD", "I_MPI_FABRICS",
    "OMPI_MCA_pml", "OMPI_MCA_btl", "OMPI_MCA_mtl", "OMPI_MCA_accelerator", "OMPI_MCA_opal_cuda",
)  # fmt: skip
"""Variables with these prefixes choose transports: a proof with one value does not hold for another."""
REMEDY = "`hpccoll doctor --gpu-aware`, started like the job, tries"


@dataclass(frozen=True)
class Setup:
    """The software for which a proof is valid."""

    mpi: str
    """The MPI library, as it names itself."""
    launcher: str
    kernel_driver: str
    """Version of NVIDIA's kernel module, such as 580.65.06; "" if unknown."""
    hpccoll: str
    settings: dict[str, str]


@dataclass(frozen=True)
class Proof:
    """The result of one trial."""

    proved: bool
    why: str
    """The reason if it is not proved."""
    setup: Setup
    devices: list[str]
    """The GPU's name, and the newest CUDA that the driver supports: "NVIDIA H200, CUDA 12.8"."""
    ranks: int
    hosts: list[str]
    date: str
    """ISO 8601, UTC."""
    file: str = ""

    def line(self) -> str:
        """Write the proof on one line."""
        verdict = "proved" if self.proved else f"not proved ({self.why})"
        nodes = f"{len(self.hosts)} node{'s' if len(self.hosts) > 1 else ''}: {listed(self.hosts, 4)}"
        where = f"{listed(self.devices)}, {short(self.setup.mpi)}, {self.setup.launcher or 'no launcher'}"
        return f"{verdict} on {self.date[:10]} by {self.ranks} ranks ({nodes}): {where}"


@dataclass(frozen=True)
class Verdict:
    """The conclusion from all proofs for a job."""

    devices: list[str]
    """Devices whose memory MPI accepts."""
    why: str
    """The reason if there are none."""


def setup(mpi: str, launcher: str, env: Mapping[str, str]) -> Setup:
    """Describe the setup of this process.

    :param mpi: the MPI library, as `library` names it
    :param launcher: the launcher, as hpccoll.detect names it
    """
    settings = {name: env[name] for name in sorted(env) if name.startswith(SETTINGS)}
    return Setup(mpi, launcher, kernel_driver(), _core.VERSION, settings)


def kernel_driver() -> str:
    """Read the version of NVIDIA's kernel module, or ""."""
    try:
        found = re.search(r"Kernel Module.*?(\d+\.[\d.]+)", KERNEL_DRIVER.read_text())
    except OSError:
        return ""
    return found[1] if found else ""


def library(text: str) -> str:
    """Shorten the text of MPI_Get_library_version to its first line."""
    return " ".join((text.strip("\0\n ").splitlines() or [""])[0].split())


def short(version: str) -> str:
    """Shorten a library's name for itself to name and version."""
    return version.split(",")[0]


# ---- the files ---------------------------------------------------------------------------------------


def files(named: str, env: Mapping[str, str]) -> list[Path]:
    """Find the files of proofs: the knob's file, or the user's and the site's. New proofs go to the first.

    :param named: HPCCOLL_GPU_AWARE_RECORD
    """
    if named:
        return [Path(named)]
    user = Path(env.get("XDG_CONFIG_HOME") or Path(env.get("HOME", "~")).expanduser() / ".config")
    return [user / "hpccoll" / FILE, Path(sys.prefix) / "etc" / "hpccoll" / FILE]


def read(paths: Iterable[Path]) -> tuple[list[Proof], str]:
    """Read all proofs.

    :returns: the proofs, and the errors of the files that cannot be read, or ""
    """
    proofs, wrong = [], []
    for path in paths:
        try:
            proofs += [from_values({**one, "file": str(path)}) for one in json.loads(path.read_text())["proofs"]]
        except FileNotFoundError:
            continue
        except (OSError, ValueError, TypeError, KeyError) as error:
            wrong.append(f"{path} cannot be read ({type(error).__name__}: {error})")
    return proofs, "; ".join(wrong)


def from_values(values: dict[str, Any]) -> Proof:
    """Make a proof from the values of dataclasses.asdict().

    :raises TypeError: the values are none of a proof
    :raises KeyError: some are missing
    """
    where = Setup(**values["setup"])
    proof = Proof(**{**values, "setup": where})
    for field in fields(Proof):
        if field.name in ("proved", "ranks") and not isinstance(getattr(proof, field.name), int):
            raise TypeError(f"{field.name} is {getattr(proof, field.name)!r}")
    return proof


def write(path: Path, proof: Proof) -> None:
    """Write a proof into a file; it replaces an older proof for the same setup, devices and number of nodes.

    :raises OSError: the file cannot be read or written
    """
    kept, wrong = read([path])
    if wrong:
        raise OSError(wrong)
    same = [p for p in kept if (p.setup, set(p.devices), len(p.hosts) > 1)
            == (proof.setup, set(proof.devices), len(proof.hosts) > 1)]  # fmt: skip
    values = [asdict(p) for p in kept if p not in same] + [asdict(proof)]
    for one in values:
        del one["file"]
    path.parent.mkdir(parents=True, exist_ok=True)
    durable.write_text(path, json.dumps({"proofs": values}, indent=2) + "\n")


# ---- the verdict -------------------------------------------------------------------------------------


def misfit(proof: Proof, here: Setup, nodes: int) -> str:
    """Compare a proof with the setup of this job.

    :param nodes: number of nodes of this job
    :returns: the first difference, in words; "" if the proof is for this job
    """
    names = {"mpi": "", "launcher": "launcher ", "kernel_driver": "kernel driver ", "hpccoll": "hpccoll "}
    for field, name in names.items():
        theirs, ours = getattr(proof.setup, field), getattr(here, field)
        if theirs != ours:
            if short(theirs) != short(ours):
                theirs, ours = short(theirs), short(ours)
            return f"{name}{theirs or '(none)'}, and here is {name}{ours or '(none)'}"
    if proof.setup.settings != here.settings:
        others = sorted(
            name
            for name in proof.setup.settings | here.settings
            if proof.setup.settings.get(name) != here.settings.get(name)
        )
        return f"other settings: {listed(others)}"
    if nodes > 1 and len(proof.hosts) < 2:
        return f"one node, and here are {nodes}"
    return ""


def verdict(proofs: Iterable[Proof], wrong: str, here: Setup, nodes: int) -> Verdict:
    """Conclude from all proofs. For each device the latest proof for this job counts, whether positive or negative.

    :param wrong: the errors of the files of proofs, see `read`
    :param here: the setup of this job
    :param nodes: number of nodes of this job
    """
    latest: dict[str, Proof] = {}
    ordered = sorted(proofs, key=lambda proof: proof.date)
    for proof in ordered:
        if not misfit(proof, here, nodes):
            latest |= dict.fromkeys(proof.devices, proof)
    refusals = [proof for proof in latest.values() if not proof.proved]
    why = wrong
    if refusals:
        why = f"tried on {refusals[-1].date[:10]}, and {refusals[-1].why}"
    elif not latest and ordered:
        last = ordered[-1]
        why = f"the proof of {last.date[:10]} in {last.file} is for {misfit(last, here, nodes)}: {REMEDY} again"
    elif not latest and not wrong:
        why = f"not tried: {REMEDY}"
    return Verdict([device for device, proof in latest.items() if proof.proved], why)
