# SPDX-License-Identifier: Apache-2.0
"""HOROVOD_ variables. Those with a counterpart are honoured; each of the others is reported as without effect."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from hpccoll import config, errors

__all__ = ["Found", "counterparts", "read"]

PREFIX = "HOROVOD_"


class Found(NamedTuple):
    """The meaning of the HOROVOD_ variables of an environment."""

    knobs: dict[str, Any]
    """Fields of Config, for init()."""
    lines: list[str]
    """Messages about them."""


def _milliseconds(text: str) -> float:
    return float(text) / 1000


def _true(text: str) -> bool:
    """Horovod takes numbers above 0 as true and any word as false; here "true", "yes" and "on" are true, too."""
    return text.lower() in ("true", "yes", "on") or (text.lstrip("-").isdecimal() and int(text) > 0)


def _verbose(text: str) -> int:
    return {"trace": 1, "debug": 1, "info": 1, "warning": 1, "error": 0, "fatal": 0}[text.lower()]


def _timeline(text: str) -> str:
    """Read the file; DYNAMIC gives none, because start_timeline() always works."""
    return "" if text == "DYNAMIC" else text


_KNOBS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "FUSION_THRESHOLD": ("fusion_threshold", int),
    "CYCLE_TIME": ("raise_window", _milliseconds),
    "CACHE_CAPACITY": ("cache_capacity", int),
    "STALL_CHECK_TIME_SECONDS": ("stall_warning", float),
    "STALL_SHUTDOWN_TIME_SECONDS": ("stall_limit", float),
    "START_TIMEOUT": ("start_timeout", float),
    "LOG_LEVEL": ("verbose", _verbose),
    "TIMELINE": ("timeline", _timeline),
    "AUTOTUNE": ("autotune", _true),
    "AUTOTUNE_LOG": ("autotune_log", str),
    "AUTOTUNE_STEPS_PER_SAMPLE": ("autotune_steps", int),
    "AUTOTUNE_WARMUP_SAMPLES": ("autotune_warmup", int),
}
"""Variable to knob, and how its value is read."""

_UNITS = {"CYCLE_TIME": ", in s instead of ms", "LOG_LEVEL": ", 0 or 1"}

_ALWAYS = {
    "AUTOTUNE_BAYES_OPT_MAX_SAMPLES": "the tuner ends when nothing gains, and has no Gaussian process",
    "AUTOTUNE_GAUSSIAN_PROCESS_NOISE": "the tuner repeats a sample until it is sure, and has no Gaussian process",
    "DYNAMIC_PROCESS_SETS": "process sets are always dynamic",
    "DISABLE_GROUP_FUSION": "a group is always a batch of its own",
    "HIERARCHICAL_ALLREDUCE": "the data path is always hierarchical",
    "HIERARCHICAL_ALLGATHER": "the data path is always hierarchical",
}
"""Variables that request a permanent behaviour of hpccoll, and that behaviour."""


_OF_THE_LAUNCHER = ("CROSS_RANK", "CROSS_SIZE", "ELASTIC", "HOSTNAME", "LOCAL_RANK", "LOCAL_SIZE", "RANK", "SIZE")
"""Variables that an elastic job sets, as Horovod's launcher does, for programs that read them."""


def counterparts() -> dict[str, str]:
    """Return what replaces each HOROVOD_ variable that is honoured or not needed, for the documentation."""
    both = f"`{config.variable('stall_warning')}=0` and `{config.variable('stall_limit')}=0`"
    return {
        **{PREFIX + name: f"`{config.variable(knob)}`{_UNITS.get(name, '')}" for name, (knob, _) in _KNOBS.items()},
        f"{PREFIX}STALL_CHECK_DISABLE": both,
        **{PREFIX + name: f"not needed: {why}" for name, why in _ALWAYS.items()},
    }


def read(env: Mapping[str, str]) -> Found:
    """Translate the HOROVOD_ variables of an environment. An HPCCOLL_ variable takes precedence.

    :raises InvalidArgumentError: a value cannot be read
    """
    knobs: dict[str, Any] = {}
    lines, unknown = [], []
    for variable in sorted(name for name in env if name.startswith(PREFIX)):
        name, text = variable.removeprefix(PREFIX), env[variable]
        if name == "STALL_CHECK_DISABLE":
            lines += _stall_check(text, env, knobs)
        elif name in _KNOBS:
            lines.append(_honour(variable, text, env, knobs))
        elif name in _ALWAYS:
            lines.append(f"{variable} is not needed: {_ALWAYS[name]}")
        elif name not in _OF_THE_LAUNCHER:
            unknown.append(variable)
    if unknown:
        lines.append(f"{', '.join(unknown)}: no counterpart in hpccoll, without effect")
    return Found(knobs, lines)


def _honour(variable: str, text: str, env: Mapping[str, str], knobs: dict[str, Any]) -> str:
    knob, parse = _KNOBS[variable.removeprefix(PREFIX)]
    new = config.variable(knob)
    if new in env:
        return f"{new} goes before {variable}"
    try:
        knobs[knob] = parse(text)
    except (ValueError, KeyError):
        raise errors.InvalidArgumentError(f"{variable}={text!r} could not be read; its name is now {new}") from None
    return f"{variable} is honoured; its name is now {new} (here {knobs[knob]!r})"


def _stall_check(text: str, env: Mapping[str, str], knobs: dict[str, Any]) -> list[str]:
    if not _true(text):
        return []
    new = [config.variable(knob) for knob in ("stall_warning", "stall_limit")]
    for knob in ("stall_warning", "stall_limit"):
        if config.variable(knob) not in env:
            knobs[knob] = 0.0
    return [f"{PREFIX}STALL_CHECK_DISABLE is honoured; its names are now {new[0]}=0 and {new[1]}=0"]
