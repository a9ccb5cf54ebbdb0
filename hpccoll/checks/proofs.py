# SPDX-License-Identifier: Apache-2.0
"""What `hpccoll doctor --gpu-aware` found: whether MPI may be given the memory of a GPU, recorded per site.

A record names all that was seen to make the difference: the MPI library, the launcher, GPU and driver, the settings of
the transports, whether messages crossed nodes. A job that has all of that believes it, any other says why it does not.
"""

from __future__ import annotations

import json
import os
import platform
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from importlib import metadata
from pathlib import Path
from typing import Any

from hpccoll.text import listed

FILE = "gpu_aware_mpi.json"
KERNEL_DRIVER = Path("/proc/driver/nvidia/version")
SETTINGS = (
    "UCX_", "FI_", "PSM2_", "PSM3_", "MPICH_", "MPIR_CVAR_", "MV2_", "I_MPI_OFFLOAD", "I_MPI_FABRICS",
    "OMPI_MCA_pml", "OMPI_MCA_btl", "OMPI_MCA_mtl", "OMPI_MCA_accelerator", "OMPI_MCA_opal_cuda",
)  # fmt: skip
"""Variables that begin like this choose transports: a proof with one says nothing of another."""
REMEDY = "`hpccoll doctor --gpu-aware`, started like the job, tries"


@dataclass(frozen=True)
class Place:
    """What a proof is for, beside the GPU itself."""

    mpi: str
    """The library, as it names itself."""
    launcher: str
    kernel_driver: str
    """Of the nodes' kernels, as 580.65.06; "" where the kernel does not say."""
    hpccoll: str
    settings: dict[str, str]


@dataclass(frozen=True)
class Proof:
    """One verdict."""

    proved: bool
    why: str
    """Why not."""
    place: Place
    devices: list[str]
    """As "NVIDIA H200, CUDA 12.8": name, and the newest CUDA that the driver speaks."""
    ranks: int
    hosts: list[str]
    date: str
    """ISO 8601, UTC."""
    file: str = ""

    def line(self) -> str:
        """On one line, for people."""
        verdict = "proved" if self.proved else f"not proved ({self.why})"
        nodes = f"{len(self.hosts)} node{'s' if len(self.hosts) > 1 else ''}: {listed(self.hosts, 4)}"
        where = f"{listed(self.devices)}, {short(self.place.mpi)}, {self.place.launcher or 'no launcher'}"
        return f"{verdict} on {self.date[:10]} by {self.ranks} ranks ({nodes}): {where}"


@dataclass(frozen=True)
class Verdict:
    """What the proofs come to for a job."""

    devices: list[str]
    """Those whose memory MPI may be given."""
    why: str
    """Why there are none."""


def place(mpi: str, launcher: str, env: Mapping[str, str]) -> Place:
    """Of this process."""
    settings = {name: env[name] for name in sorted(env) if name.startswith(SETTINGS)}
    return Place(mpi, launcher, kernel_driver(), metadata.version("hpccoll"), settings)


def kernel_driver() -> str:
    """The version of NVIDIA's kernel module, or ""."""
    try:
        found = re.search(r"Kernel Module.*?(\d+\.[\d.]+)", KERNEL_DRIVER.read_text())
    except OSError:
        return ""
    return found[1] if found else ""


def library(text: str) -> str:
    """The first line of what an MPI library says of itself."""
    return " ".join((text.strip("\0\n ").splitlines() or [""])[0].split())


def short(version: str) -> str:
    """The name and number of what some libraries say at length."""
    return version.split(",")[0]


# ---- the files ---------------------------------------------------------------------------------------


def files(named: str, env: Mapping[str, str]) -> list[Path]:
    """Where proofs are read from: the knob's file, or the user's and the site's. They are written to the first."""
    if named:
        return [Path(named)]
    own = Path(env.get("XDG_CONFIG_HOME") or Path(env.get("HOME", "~")).expanduser() / ".config")
    return [own / "hpccoll" / FILE, Path(sys.prefix) / "etc" / "hpccoll" / FILE]


def read(paths: Iterable[Path]) -> tuple[list[Proof], str]:
    """All proofs, and what is wrong with the files that cannot be read, "" if nothing."""
    proofs, wrong = [], []
    for path in paths:
        try:
            proofs += [_proof(one, str(path)) for one in json.loads(path.read_text())["proofs"]]
        except FileNotFoundError:
            continue
        except (OSError, ValueError, TypeError, KeyError) as error:
            wrong.append(f"{path} cannot be read ({type(error).__name__}: {error})")
    return proofs, "; ".join(wrong)


def _proof(values: dict[str, Any], file: str) -> Proof:
    where = Place(**values["place"])
    proof = Proof(**{**values, "place": where, "file": file})
    for field in fields(Proof):
        if field.name in ("proved", "ranks") and not isinstance(getattr(proof, field.name), int):
            raise TypeError(f"{field.name} is {getattr(proof, field.name)!r}")
    return proof


def write(path: Path, proof: Proof) -> None:
    """Put it into the file, in place of what it is another verdict on."""
    kept, wrong = read([path])
    if wrong:
        raise OSError(wrong)
    same = [p for p in kept if (p.place, set(p.devices), len(p.hosts) > 1)
            == (proof.place, set(proof.devices), len(proof.hosts) > 1)]  # fmt: skip
    values = [asdict(p) for p in kept if p not in same] + [asdict(proof)]
    for one in values:
        del one["file"]
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{platform.node()}.{os.getpid()}")
    fresh.write_text(json.dumps({"proofs": values}, indent=2) + "\n")
    fresh.replace(path)


# ---- what they come to -------------------------------------------------------------------------------


def misfit(proof: Proof, here: Place, nodes: int) -> str:
    """What this job has otherwise, of all but the GPU; "" if the proof is for it."""
    names = {"mpi": "", "launcher": "launcher ", "kernel_driver": "kernel driver ", "hpccoll": "hpccoll "}
    for field, name in names.items():
        theirs, ours = getattr(proof.place, field), getattr(here, field)
        if theirs != ours:
            if short(theirs) != short(ours):
                theirs, ours = short(theirs), short(ours)
            return f"{name}{theirs or '(none)'}, and here is {name}{ours or '(none)'}"
    if proof.place.settings != here.settings:
        others = sorted(
            name
            for name in proof.place.settings | here.settings
            if proof.place.settings.get(name) != here.settings.get(name)
        )
        return f"other settings: {listed(others)}"
    if nodes > 1 and len(proof.hosts) < 2:
        return f"one node, and here are {nodes}"
    return ""


def verdict(proofs: Iterable[Proof], wrong: str, here: Place, nodes: int) -> Verdict:
    """Of the proofs that are for this job the latest of each device counts; a "no" as much as a "yes"."""
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
        why = (
            f"the proof of {last.date[:10]} in {last.file} is for {misfit(last, here, nodes)}: {REMEDY} again"
        )
    elif not latest and not wrong:
        why = f"nobody has tried: {REMEDY}"
    return Verdict([device for device, proof in latest.items() if proof.proved], why)
