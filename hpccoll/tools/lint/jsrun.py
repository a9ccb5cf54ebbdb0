# SPDX-License-Identifier: Apache-2.0
"""jsrun's options and the arithmetic of its resource sets, as documented; tried with a stand-in only.

A resource set is cores and GPUs of one node in which tasks run; all sets of a jsrun are the same. Sources: OLCF,
Summit User Guide, "Job Launcher (jsrun)" (options, defaults, core isolation); IBM, "jsrun command" (JSM 10); LLNL,
"Slurm srun versus IBM CSM jsrun"; XALT's table of jsrun's options; published job scripts.
"""

from dataclasses import dataclass

from hpccoll.tools.lint.options import Grammar, Option, Parsed, parse

jsrun = Grammar(
    "jsrun",
    [
        Option("nrs", "n"),
        Option("tasks_per_rs", "a"),
        Option("cpu_per_rs", "c"),
        Option("gpu_per_rs", "g"),
        Option("rs_per_host", "r"),
        Option("np", "p"),
        Option("bind", "b"),
        Option("launch_distribution", "d"),
        Option("latency_priority", "l"),
        Option("memory_per_rs", "m"),
        Option("smpiargs", "M"),
        Option("env", "E"),
        Option("env_eval", "F"),
        Option("env_no_propagate", "D"),
        Option("chdir", "h"),
        Option("exit_on_error", "X"),
        Option("erf_input", "U"),
        Option("appfile", "f"),
        Option("save_resources", "S"),
        Option("use_spindle", "L"),
        Option("pre_post_exec", "P"),
        Option("debug", "u"),
        Option("progress"),
        Option("print_placement"),
        Option("stdio_input", "t"),
        Option("stdio_stderr", "k"),
        Option("stdio_stdout", "o"),
        Option("stdio_mode", "e"),
        Option("immediate", "i", "no"),
    ],
)
LATENCIES = {f"{a}-{b}" for a in ("cpu", "gpu", "memory", "mem") for b in ("cpu", "gpu", "memory", "mem")}
UNITS = ("", "smt", "core", "socket")


@dataclass(frozen=True)
class Sets:
    """The resource sets of one jsrun. `tasks`, `cores` and `gpus` are per set; None: only the running job knows."""

    sets: int | None
    per_host: int | None
    tasks: int
    cores: int
    gpus: int
    bind: int | None
    """Cores that a task is bound to; None: not bound, or bound to the whole set."""
    known: bool = True
    """Whether the shape of a set is known; otherwise a variable decides it and the numbers are defaults."""


@dataclass(frozen=True)
class Shape:
    """The shape of a node for jsrun: cores that are not reserved for the system, and GPUs."""

    cores: int
    gpus: int
    sockets: int
    smt: int = 1


SUMMIT = Shape(cores=42, gpus=6, sockets=2, smt=4)


def read(words: tuple[str, ...]) -> tuple[Sets, Parsed, list[str]]:
    """Read the resource sets of `jsrun WORDS`, with Summit's defaults.

    :returns: the sets, the parsed options, and what is wrong with their values
    """
    parsed = parse(jsrun, words)
    wrong = list(parsed.problems)
    node = {"ALL_CPUS": SUMMIT.cores, "ALL_GPUS": SUMMIT.gpus}

    def number(name: str, low: int) -> int | None:
        text = parsed.get(name)
        if text is None or "$" in text or "`" in text or text == "ALL_HOSTS":
            return None
        if text not in node and (not text.isdecimal() or int(text) < low):
            wrong.append(f"jsrun --{name} {text} is not a whole number from {low}")
            return None
        return node.get(text) or int(text)

    sets, tasks, total = number("nrs", 1), number("tasks_per_rs", 1), number("np", 1)
    if total and sets is None and "nrs" not in parsed:
        sets = -(-total // (tasks or 1))  # without --nrs each task has a set of its own
    elif total and sets and tasks is None:
        tasks = -(-total // sets)
    cores, gpus = number("cpu_per_rs", 1), number("gpu_per_rs", 0)
    shape = {"tasks_per_rs": tasks, "cpu_per_rs": cores, "gpu_per_rs": gpus}
    found = Sets(
        sets=sets,
        per_host=number("rs_per_host", 1),
        tasks=tasks or 1,
        cores=cores or 1,
        gpus=gpus or 0,
        bind=_bind(parsed.get("bind"), wrong),
        known="erf_input" not in parsed and not any(n in parsed and v is None for n, v in shape.items()),
    )
    _check_words(parsed, wrong)
    return found, parsed, wrong


def _bind(text: str | None, wrong: list[str]) -> int | None:
    """Cores that a task is bound to by `none`, `rs`, `packed:N` or `packed:smt:N`; the default is packed:1."""
    if text is None:
        return 1
    if text in ("none", "rs") or "$" in text:
        return None
    kind, _, rest = text.partition(":")
    unit, _, count = rest.rpartition(":")
    if kind not in ("packed", "proportional-packed") or unit not in UNITS or not (count or "1").isdecimal():
        wrong.append(f"jsrun --bind {text} is not none, rs, packed:N or packed:smt:N")
        return None
    return int(count or 1) if unit in ("", "core") else None


def _check_words(parsed: Parsed, wrong: list[str]) -> None:
    """Check values that are words and not numbers."""
    spread = parsed.get("launch_distribution") or "packed"
    plane = spread.partition(":")
    if spread not in ("packed", "cyclic") and not (plane[0] == "plane" and plane[2].isdecimal()) and "$" not in spread:
        wrong.append(f"jsrun --launch_distribution {spread} is not packed, cyclic or plane:N")
    pairs = (parsed.get("latency_priority") or "cpu-cpu").lower().split(",")
    unknown = [pair for pair in pairs if pair not in LATENCIES and "$" not in pair]
    wrong += [f"jsrun --latency_priority {pair} is not a pair like gpu-cpu" for pair in unknown]


def fit(sets: Sets, shape: Shape) -> int:
    """Count the sets that fit on a node."""
    by_gpus = shape.gpus // sets.gpus if sets.gpus else shape.cores
    return min(shape.cores // sets.cores, by_gpus)


def fit_in_sockets(sets: Sets, shape: Shape) -> int:
    """Count the sets that fit on a node if no set may span sockets."""
    socket = Shape(shape.cores // shape.sockets, shape.gpus // shape.sockets, 1)
    return shape.sockets * fit(sets, socket)
