# SPDX-License-Identifier: Apache-2.0
"""The knobs, each one field of `Config`.

A knob that C reads is a row in the table of the struct that holds it (HC_ENGINE_KNOBS, HC_LOOP_KNOBS,
HC_HIERARCHY_KNOBS); the fields of the others stand here.

The knob `x` is set by the variable `HPCCOLL_X`, or by `init(x=...)`, which takes precedence.

    >>> hpccoll.config.read(stall_limit=30.0).stall_limit
    30.0
"""

import dataclasses
import difflib
import math
import operator
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hpccoll import _core, errors, inherited
from hpccoll.compared import Compared
from hpccoll.text import some_ranks

__all__ = ["Config", "Knob", "knobs", "read"]

PREFIX = "HPCCOLL_"
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


def _knob(
    default: Any,
    doc: str,
    *,
    unit: str = "",
    low: float = 0,
    high: float = math.inf,
    choices: tuple[str, ...] = (),
    agreed: bool = False,
    allowed: str = "",
    fits: Callable[[Any], bool] | None = None,
) -> Any:
    """Make one field.

    :param agreed: the value must be equal on all ranks; this is checked when the World is made
    :param allowed: the values that `fits` accepts, in words, where `choices` or `low` and `high` cannot say it
    """
    metadata = {
        "doc": doc, "unit": unit, "low": low, "high": high, "choices": choices, "agreed": agreed, "allowed": allowed,
        "fits": fits,
    }  # fmt: skip
    return dataclasses.field(default=default, metadata=metadata)


def _is_number(text: str) -> bool:
    return text.isdecimal() and len(text) < 10


def _is_nodes(text: str) -> bool:
    return not text or all(_is_number(part) and int(part) > 0 for part in text.split("+"))


def _is_device(text: str) -> bool:
    return text in ("auto", "local", "none") or _is_number(text)


if TYPE_CHECKING:

    class _KnobsOfC:
        """Names of the knobs of C that Python also reads."""

        stall_warning: float
        stall_limit: float
        peer_timeout: float
        deterministic: bool

else:
    _KnobsOfC = dataclasses.make_dataclass(
        "_KnobsOfC",
        [
            (row["name"], type(row["default"]), _knob(**{key: row[key] for key in row if key != "name"}))
            for row in _core.KNOBS
        ],
        frozen=True,
    )


@dataclasses.dataclass(frozen=True)
class Config(_KnobsOfC):
    """All knobs of a World. The page Knobs lists them with unit, bounds and meaning."""

    start_timeout: float = _knob(
        120.0,
        "longest time to wait for all ranks at the start, and in `subset`, `split`, `cart`",
        unit="s",
        low=0.1,
        high=86400,
    )
    stop_timeout: float = _knob(60.0, "longest time to wait for the others at the end", unit="s", high=86400)
    nodes: str = _knob(
        "", 'lets the ranks of one machine act as several nodes: how many ("2"), or the ranks of each ("3+1")',
        agreed=True, allowed='a number of nodes ("2") or ranks per node ("3+1")', fits=_is_nodes,
    )  # fmt: skip
    node_file: str = _knob(
        "", "file that says where the nodes stand in the network: a line for each host, with its name and its switches "
        "from the top down (`n17 pod2 leaf5`); empty: Slurm's topology, Cray's xname, or the order of host names",
        agreed=True,
    )  # fmt: skip
    net: str = _knob(
        "auto", "what carries data between nodes: auto (the first that can: MPI where the ranks met through it, UCX, "
        "what other packages bring), mpi, ucx, or the name of another package's net", agreed=True,
    )  # fmt: skip
    interface: str = _knob(
        "", "network interfaces of the net over UCX, by name, network or address (eth0,10.1.0.0/16); empty: those that "
        "lead to all hosts of the job, and the InfiniBand adapters"
    )  # fmt: skip
    ucx_library: str = _knob(
        "", "file of UCX (libucp.so.0); empty: the one in the process, in Python's packages, or the system's"
    )
    algorithm: str = _knob(
        "auto", "allreduce between nodes", agreed=True,
        choices=("auto", "direct", "stages", "ring"),
    )  # fmt: skip
    wire: str = _knob(
        "none",
        "type of float32 and float64 values between nodes",
        choices=("none", "fp16", "bf16"),
        agreed=True,
    )
    fanout: int = _knob(16, "children of a rank in the control tree", unit="ranks", low=1, high=1024, agreed=True)
    simd: str = _knob("auto", "vector code", choices=("auto", "avx512", "avx2", "portable"))
    stores: str = _knob(
        "auto", "how a rank writes what others of its node read: plain, stream (past the caches: faster between L3s, "
        "slower within one), auto (as the rates of its own copies want it, tried every 10 ms); and how it writes "
        "results (auto: past the caches if input and result have 12 MiB)",
        choices=("auto", "plain", "stream"),
    )  # fmt: skip
    wait: str = _knob(
        "auto", "what a thread does that waits for other ranks: spin (keeps its core for 0.1 ms, then sleeps), yield "
        "(gives its core away, then sleeps), sleep (at once), auto (yield where ranks outnumber the cores that they "
        "may use, else spin)",
        choices=("auto", "spin", "yield", "sleep"),
    )  # fmt: skip
    background: bool = _knob(
        True,
        "a thread drives while nobody waits, where the net allows it (MPI: its thread level)",
    )
    end_time: float = _knob(
        0.0, "when the job's time ends, in seconds since the epoch; 0: as the scheduler says", unit="s"
    )
    preempt_margin: float = _knob(
        60.0,
        "how long before the job's end preemption() stops the ranks, at most a tenth of the time left",
        unit="s",
        high=86400,
    )
    device: str = _knob(
        "auto", 'which GPU arrays in device memory lie on: "auto" (that of the first array), "local" (each rank of a '
        'node has its own, opened and checked at the start), "none" (they are refused), or its number, opened at the '
        "start",
        allowed="auto, local, none or the number of a device", fits=_is_device,
    )  # fmt: skip
    device_mode: str = _knob(
        "auto", "how arrays in device memory are moved: staged (through host memory), nccl (NCCL in the node, messages "
        "between nodes), nccl_flat (NCCL between all ranks), mpi (messages between all ranks, of MPI or UCX)",
        choices=("auto", "staged", "nccl", "nccl_flat", "mpi"), agreed=True,
    )  # fmt: skip
    device_small: int = _knob(
        64 << 10, "in device mode auto, on several nodes: allreduces and broadcasts up to this are staged; 0: none",
        unit="bytes", high=1 << 40, agreed=True,
    )  # fmt: skip
    gpu_aware_mpi: str = _knob(
        "auto", "whether MPI is given the memory of GPUs: yes, no, auto (where `hpccoll doctor --gpu-aware` proved it)",
        choices=("auto", "yes", "no"), agreed=True,
    )  # fmt: skip
    gpu_aware_record: str = _knob(
        "", "file of what `hpccoll doctor --gpu-aware` found; empty: ~/.config/hpccoll/gpu_aware_mpi.json, and "
        "etc/hpccoll/gpu_aware_mpi.json where this Python is installed",
    )  # fmt: skip
    cuda_library: str = _knob(
        "", "file of the CUDA driver (libcuda.so.1); empty: the one in the process, or the system's"
    )
    nccl_library: str = _knob("", "file of NCCL; empty: the one in the process, in Python's packages, or the system's")
    allow_singleton: bool = _knob(False, "accept a World of one rank in a job step of several tasks")
    check: bool = _knob(
        True, "look at the start for what will be slow or fail (binding, threads, shared memory, names)"
    )
    trust_mpi: bool = _knob(
        False,
        "take MPI's word where launcher and MPI, or two ranks' MPI libraries, disagree; start it where it should fail",
    )
    timeline: str = _knob(
        "",
        "file for a timeline from the start on; rank 0 writes it, with {rank} in the name every rank its own",
    )
    trace_dir: str = _knob(
        "",
        "folder for the last events of each rank, written at a failure and at SIGUSR2; empty: hpccoll-trace-JOB in the "
        "working folder; none: they are not written",
    )
    autotune: bool = _knob(
        False, "rank 0 looks for a better fusion_threshold, raise_bytes and raise_window while the job runs; they "
        "change on all ranks after the same entry of the log", agreed=True,
    )  # fmt: skip
    autotune_log: str = _knob("", "file in which rank 0 writes every sample and every change of the tuner; empty: none")
    autotune_steps: int = _knob(10, "steps of a sample of the tuner", unit="steps", low=2, high=10000)
    autotune_warmup: int = _knob(3, "samples that the tuner drops before it begins", unit="samples", high=10000)
    site_file: str = _knob(
        "", "file of knobs for this machine, as `hpccoll tune` writes it; environment and arguments take precedence"
    )
    study: str = _knob("", "file for the steps that hpccoll.study reports; `hpccoll study` sets it")
    verbose: int = _knob(1, "whether rank 0 says on stderr what was chosen", high=1)

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            _validate(field, getattr(self, field.name))


class Knob(NamedTuple):
    """A knob as the documentation shows it: all values as text."""

    name: str
    variable: str
    default: str
    unit: str
    bounds: str
    doc: str


def knobs() -> list[Knob]:
    """List all knobs, in the order of `Config`.

    :returns: what the documentation shows of each
    """
    return [
        Knob(f.name, variable(f.name), _shown(f.default), f.metadata["unit"], _bounds(f), f.metadata["doc"])
        for f in dataclasses.fields(Config)
    ]


def variable(name: str) -> str:
    """Give the environment variable of a knob.

    :param name: a field of `Config`
    """
    return PREFIX + name.upper()


def read(env: Mapping[str, str] | None = None, **given: Any) -> Config:
    """Read the knobs from the environment.

    :param env: the variables; None: the environment of the process
    :param given: knobs by name, which take precedence; a text is read as the variable's, as `fusion_threshold="16M"`
    :returns: all knobs
    :raises InvalidArgumentError: a variable that begins with `HPCCOLL_` or a name in `given` is no knob, or a value is
        out of its bounds or of the wrong type
    """
    env = inherited.environment() if env is None else env
    fields = {f.name: f for f in dataclasses.fields(Config)}
    values = {}
    for name, text in env.items():
        if name.startswith(PREFIX) and name != inherited.SECRET:
            field = _find(fields, name.removeprefix(PREFIX).lower(), name)
            values[field.name] = _parse(field, text, name)
    values |= {name: _value(_find(fields, name, name), value) for name, value in given.items()}
    return Config(**(_site(values.get("site_file", ""), fields) | values))


def read_or_default(**given: Any) -> tuple[Config, errors.InvalidArgumentError | None]:
    """Read the knobs as `read` does; if one is wrong, return the defaults, with which a rank can tell the others.

    :returns: the knobs, and the error
    """
    try:
        return read(**given), None
    except errors.InvalidArgumentError as error:
        return Config(), error


def _site(path: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Read the knobs of a site file: TOML, with a table `knobs`.

    :raises InvalidArgumentError: it cannot be read, or holds something else
    """
    if not path:
        return {}
    import tomllib  # few jobs have a site file

    try:
        with open(path, "rb") as file:
            found = tomllib.load(file)["knobs"]
        if not isinstance(found, dict):
            raise TypeError(f"knobs is {found!r}, not a table")
        for name, value in found.items():
            found[name] = _value(_find(dict(fields), name, name), value)
            _validate(fields[name], found[name])
    except (OSError, KeyError, TypeError, ValueError, errors.InvalidArgumentError) as error:
        reason = "it has no table [knobs]" if isinstance(error, KeyError) else str(error)
        raise errors.InvalidArgumentError(f"{variable('site_file')}={path} cannot be used: {reason}") from None
    return found


def from_values(values: Mapping[str, Any]) -> Config:
    """Make the knobs of another rank from the values that it has sent.

    :param values: by name, as dataclasses.asdict() gives them
    :raises InvalidArgumentError: they are not all knobs, with values within their bounds
    """
    names = {field.name for field in dataclasses.fields(Config)}
    if set(values) != names:
        raise errors.InvalidArgumentError(f"knobs are missing or unknown: {', '.join(sorted(names ^ set(values)))}")
    return Config(**values)


def differences(configs: Compared[Config]) -> str:
    """Describe the knobs that must be equal on all ranks and are not.

    :param configs: the knobs of the ranks
    :returns: a line per knob with its values and their ranks; "" where all are equal
    """
    lines = []
    for field in dataclasses.fields(Config):
        if not field.metadata["agreed"]:
            continue
        found = configs.map(operator.attrgetter(field.name))
        if not found.alike:
            said = "; ".join(f"{_shown(value)} on {some_ranks(found.ranks(i))}" for i, value in enumerate(found.values))
            lines.append(f"{variable(field.name)} differs between ranks: {said}")
    return "\n".join(lines)


def _find(fields: dict[str, Any], name: str, as_given: str) -> Any:
    if name in fields:
        return fields[name]
    near = difflib.get_close_matches(name, fields, 1, 0.5)
    shown = (variable(near[0]) if as_given.startswith(PREFIX) else near[0]) if near else ""
    hint = f"did you mean {shown}?" if near else f"the knobs are {', '.join(fields)}"
    raise errors.InvalidArgumentError(f"{as_given} is no knob of hpccoll: {hint}")


def _value(field: Any, value: Any) -> Any:
    """Read a value of init() or of a site file: text is what the variable would hold, as "16M"."""
    if isinstance(value, np.generic):
        value = value.item()
    return _parse(field, value, f"{variable(field.name)} ({field.name})") if isinstance(value, str) else value


def _parse(field: Any, text: str, shown: str) -> Any:
    kind = type(field.default)
    try:
        if kind is bool:
            return _parse_bool(text)
        return _parse_int(text) if kind is int else kind(text)
    except ValueError:
        unit = f" ({field.metadata['unit']})" if field.metadata["unit"] else ""
        raise errors.InvalidArgumentError(f"{shown}={text!r} is not {_bounds(field)}{unit}") from None


def _parse_bool(text: str) -> bool:
    if text.lower() not in _TRUE + _FALSE:
        raise ValueError(text)
    return text.lower() in _TRUE


def _parse_int(text: str) -> int:
    """Read an integer; the suffixes K, M and G multiply by 1024, 1024**2 and 1024**3."""
    scale = {"K": 10, "M": 20, "G": 30}.get(text[-1:].upper(), 0)
    return int(text[:-1] if scale else text) << scale


def _validate(field: Any, value: Any) -> None:
    kind, meta = type(field.default), field.metadata
    fits = isinstance(value, (int, float) if kind is float else kind) and (kind is bool or not isinstance(value, bool))
    if fits and meta["choices"]:
        fits = value in meta["choices"]
    elif fits and meta["fits"]:
        fits = meta["fits"](value)
    elif fits and kind in (int, float):
        fits = meta["low"] <= value <= meta["high"]
    if not fits:
        allowed = "True or False" if kind is bool else _bounds(field)
        raise errors.InvalidArgumentError(f"{variable(field.name)} ({field.name}) is {value!r}, not {allowed}")


def _bounds(field: Any) -> str:
    meta, kind = field.metadata, type(field.default)
    if meta["choices"]:
        return "one of " + ", ".join(meta["choices"])
    if meta["allowed"]:
        return str(meta["allowed"])
    if kind is bool:
        return "0 or 1"
    if kind is str:
        return "any text"
    high = "" if math.isinf(meta["high"]) else f" to {_shown(meta['high'])}"
    return f"{_shown(meta['low'])}{high or ' or more'}"


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, int) and value >= 1 << 20 and value % (1 << 20) == 0:
        return f"{value >> 20}M"
    return f"{value:g}" if isinstance(value, float) else str(value) or '""'
