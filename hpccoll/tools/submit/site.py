# SPDX-License-Identifier: Apache-2.0
"""Site profiles: the shape of a node and how jobs are started there, as TOML data that is checked when read.

The fields of the classes below are the keys of the file; docs/slurm.md shows the table. `unchecked` lists the facts
without a source and those that could not be checked; `hpccoll submit` shows that list.
"""

import difflib
import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from importlib import resources
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from hpccoll.errors import HpccollError
from hpccoll.tools import written

SCHEDULERS = {"slurm": ("srun", "mpirun"), "lsf": ("jsrun", "mpirun")}
"""Schedulers, and the launchers that can start the ranks under each."""


class SiteError(HpccollError):
    """A site profile cannot be used; the text names the file, the key and the allowed values."""


@dataclass(frozen=True)
class Gpu:
    """A GPU of a node, in the order in which a job sees them."""

    numa: Annotated[int, "its NUMA domain, as Slurm's map_ldom counts them"]


@dataclass(frozen=True)
class Nic:
    """A network interface of a node."""

    name: Annotated[str, "its name on the node"]
    gbit: Annotated[int, "its rate, Gbit/s"]
    near_gpus: Annotated[list[int], "GPUs that are nearest to it; left out: unknown"] = field(default_factory=list)


@dataclass(frozen=True)
class Node:
    """The shape of a node."""

    sockets: Annotated[int, "processors"]
    numa: Annotated[int, "NUMA domains"]
    cores: Annotated[int, "cores that a job may use, of all sockets"]
    cpus_per_core: Annotated[int, "CPUs that the scheduler counts per core: 2 where it counts threads"] = 1
    smt: Annotated[int, "hardware threads per core"] = 1
    gpus: Annotated[list[Gpu], "GPUs, in the order in which a job sees them"] = field(default_factory=list)
    nics: Annotated[list[Nic], "network interfaces"] = field(default_factory=list)


@dataclass(frozen=True)
class Site:
    """A machine, or a kind of machine."""

    name: Annotated[str, "a short name"]
    title: Annotated[str, "one line about it"]
    scheduler: Annotated[str, "slurm or lsf"]
    launcher: Annotated[str, "the program that starts the ranks: srun or mpirun under slurm, jsrun or mpirun under lsf"]
    node: Annotated[Node, "the shape of a node"]
    mpi: Annotated[str, "value of `srun --mpi=`; empty: the site's default"] = ""
    gpu_view: Annotated[str, "`all`: a task sees all GPUs of its node; `own`: only its own"] = "all"
    directives: Annotated[list[str], "options for every job, as `--constraint=gpu`"] = field(default_factory=list)
    gpu_directives: Annotated[list[str], "how jobs ask for GPUs, in place of `--gpus-per-node`"] = field(
        default_factory=list
    )
    gpu_container: Annotated[str, "the option with which Apptainer brings the GPUs into a container"] = "--nv"
    script_file: Annotated[
        bool, "bsub takes the script as a file (`LSB_BSUB_PARSE_SCRIPT` in lsf.conf), not on standard input"
    ] = False
    account: Annotated[bool, "whether jobs must name a project; `hpccoll submit` then asks for --account"] = False
    modules: Annotated[list[str], "modules to load"] = field(default_factory=list)
    environment: Annotated[dict[str, str], "variables to export"] = field(default_factory=dict)
    notes: Annotated[list[str], "what the owner of a job must know; each script and `hpccoll submit` say it"] = field(
        default_factory=list
    )
    sources: Annotated[list[str], "sources of the facts"] = field(default_factory=list)
    unchecked: Annotated[list[str], "facts that could not be checked"] = field(default_factory=list)


def names() -> list[str]:
    """Return the names of the profiles that come with hpccoll."""
    return sorted(path.name.removesuffix(".toml") for path in _folder().iterdir() if path.name.endswith(".toml"))


def load(name: str) -> Site:
    """Load a profile.

    :param name: the name of a profile of hpccoll, or the path of a file that ends in .toml
    :raises SiteError: there is no such profile, or it cannot be used
    """
    if name.endswith(".toml"):
        try:
            return parse(written.read(name), name)
        except written.WrittenError as error:
            raise SiteError(str(error)) from None
    if name not in names():
        near = difflib.get_close_matches(name, names(), 1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise SiteError(
            f"no site {name!r}: {hint}There are {', '.join(names())}, or give the path of your own site.toml"
        )
    return parse((_folder() / f"{name}.toml").read_text("utf-8"), f"{name}.toml")


def parse(text: str, file: str) -> Site:
    """Read a profile from its text.

    :param file: the name of the file, for messages
    :raises SiteError: the text is no TOML, or a key or value is wrong
    """
    try:
        site: Site = _record(Site, written.toml(text, file), file, "")
    except written.WrittenError as error:
        raise SiteError(str(error)) from None
    for problem in _problems(site):
        raise SiteError(f"{file}: {problem}")
    return site


def _folder() -> Any:
    return resources.files("hpccoll.tools.submit") / "sites"


def _problems(site: Site) -> list[str]:
    """Find values of the right type that make no sense."""
    node, found = site.node, []
    launchers = SCHEDULERS.get(site.scheduler, ())
    if not launchers:
        found.append(f"scheduler = {site.scheduler!r} is not one of {', '.join(SCHEDULERS)}")
    elif site.launcher not in launchers:
        found.append(f"launcher = {site.launcher!r}: under {site.scheduler} it is {' or '.join(launchers)}")
    if site.gpu_view not in ("all", "own"):
        found.append(f"gpu_view = {site.gpu_view!r} is not all or own")
    for key in ("directives", "gpu_directives", "notes"):
        found += [f"{key}: {line!r} is not one line" for line in getattr(site, key) if len(line.splitlines()) != 1]
    names = [name for name in site.environment if not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name)]
    found += [f"environment: {name!r} is no name of a variable" for name in names]
    counts = {name: getattr(node, name) for name in ("sockets", "numa", "cores", "cpus_per_core", "smt")}
    found += [f"node.{name} = {count}: at least 1" for name, count in counts.items() if count < 1]
    for i, gpu in enumerate(node.gpus):
        if not 0 <= gpu.numa < node.numa:
            found.append(f"node.gpus[{i}].numa = {gpu.numa}: the node has NUMA domains 0 to {node.numa - 1}")
    for i, nic in enumerate(node.nics):
        if unknown := [g for g in nic.near_gpus if not 0 <= g < len(node.gpus)]:
            found.append(f"node.nics[{i}].near_gpus: there is no GPU {unknown[0]}, the node has {len(node.gpus)}")
    return found


def meanings(kind: type) -> dict[str, str]:
    """Return the meaning of each key of a table of the file."""
    return {name: hint.__metadata__[0] for name, hint in get_type_hints(kind, include_extras=True).items()}


def _record(kind: type, given: Mapping[str, Any], file: str, path: str) -> Any:
    """Make an instance of the dataclass `kind` from a table of the file."""
    hints, meaning = get_type_hints(kind), meanings(kind)
    for key in given:
        if key not in hints:
            near = difflib.get_close_matches(key, hints, 1)
            hint = f"did you mean {near[0]}?" if near else f"the keys are {', '.join(hints)}"
            raise SiteError(f"{file}: {path}{key} is no key of a site profile: {hint}")
    for f in fields(kind):
        if f.name not in given and f.default is MISSING and f.default_factory is MISSING:
            raise SiteError(f"{file}: {path}{f.name} is missing ({meaning[f.name]})")
    return kind(**{key: _value(hints[key], value, file, path + key) for key, value in given.items()})


def _value(hint: Any, value: Any, file: str, path: str) -> Any:
    """Check that `value` has the type `hint`, and make records of tables."""
    if is_dataclass(hint) and isinstance(value, dict):
        return _record(hint, value, file, f"{path}.")  # type: ignore[arg-type]
    if get_origin(hint) is list and isinstance(value, list):
        return [_value(get_args(hint)[0], item, file, f"{path}[{i}]") for i, item in enumerate(value)]
    if get_origin(hint) is dict and isinstance(value, dict):
        return {key: _value(get_args(hint)[1], item, file, f"{path}.{key}") for key, item in value.items()}
    if isinstance(hint, type) and type(value) is hint:
        return value
    wanted = {str: "a text", int: "a whole number", bool: "true or false"}.get(hint)
    wanted = wanted or ("a list" if get_origin(hint) is list else "a table")
    raise SiteError(f"{file}: {path} = {value!r} is not {wanted}")
