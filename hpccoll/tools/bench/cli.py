# SPDX-License-Identifier: Apache-2.0
"""The command `hpccoll bench`: measures inside a job, or starts one; `show`, `merge`, `compare` read its files."""

import argparse
import dataclasses
import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from hpccoll import config, detect, inherited
from hpccoll.errors import HpccollError
from hpccoll.tools.bench import (
    busy,
    clocks,
    compare,
    control,
    files,
    job,
    record,
    results,
    sizes,
    start,
    startup,
    table,
    training,
)
from hpccoll.tools.bench.bar import Bar
from hpccoll.tools.bench.collectives import COLLECTIVES
from hpccoll.tools.bench.libraries import NAMED, NOT_HERE, PEERS, PLAN, UNNAMED
from hpccoll.tools.bench.measure import Limits
from hpccoll.tools.bench.results import Case, Results, ResultsError
from hpccoll.tools.launch import installed
from hpccoll.tools.numbers import above_zero, whole, zero_or_more

PLACES = {"out": (False,), "in": (True,)}
ON_FILES = ("show", "merge", "compare")
RECORD = "record"
LEAST = 6
"""Samples of a case: with fewer there is no interval of its median."""
UNTIL_SAID = 2.0
"""Seconds that the other ranks leave rank 0 to print the error: mpirun ends the job when the first rank fails."""


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Describe `hpccoll bench`."""
    parser = commands.add_parser(
        "bench",
        help="measure collectives, beside other libraries, and verify them",
        usage="hpccoll bench [COLLECTIVE ...] [options]\n"
        "       hpccoll run -np N hpccoll bench [COLLECTIVE ...] [options]\n"
        "       hpccoll bench show FILE | merge FILE ... --out FILE | compare FILE FILE\n"
        "       hpccoll bench record FILE.py:FUNCTION --out TRACE.json",
    )
    parser.add_argument(
        "words",
        nargs="*",
        metavar="COLLECTIVE",
        help=f"{', '.join(COLLECTIVES)}, all, training, control, or startup alone (allreduce)",
    )
    _what(parser.add_argument_group("what is measured"))
    _how(parser.add_argument_group("how often"))
    _start(parser.add_argument_group("how it is started, where no launcher has started it"))
    _output(parser.add_argument_group("output"))
    parser.add_argument("--oversubscribed", action="store_true", help="accept more ranks than processors; marked")
    for option, kind in (("--expect", int), ("--number", int)):
        parser.add_argument(option, type=kind, default=0, help=argparse.SUPPRESS)
    for option in ("--in-job", "--progress"):
        parser.add_argument(option, action="store_true", help=argparse.SUPPRESS)
    parser.set_defaults(main=main, further=("words", str))


def _what(group: Any) -> None:
    group.add_argument("--sizes", type=sizes.sizes, default="8:64M:8", help="8:64M, 8:64M:4 or 4,64K,1M (8:64M:8)")
    group.add_argument("--dtype", default="float32", help=f"one or several of {','.join(job.DTYPES)} (float32)")
    group.add_argument("--model", default="resnet50", help=f"training: {', '.join(training.models())}, or a trace")
    group.add_argument(
        "--compute", type=zero_or_more, default=0.111, help="training: seconds of computing in a step (0.111)"
    )
    group.add_argument("--tensors", default="resnet50", help="control: resnet50, or how many, as 16,1000 (resnet50)")
    group.add_argument(
        "--virtual",
        default="6,96,1536",
        metavar="RANKS",
        help="control, startup: numbers of virtual ranks (6,96,1536)",
    )
    group.add_argument(
        "--net", default="", metavar="NAMES", help="nets of hpccoll to compare, as mpi,tcp (HPCCOLL_NET)"
    )
    group.add_argument(
        "--arm", action="append", default=[], metavar="NAME:KNOB=VALUE,...",
        help="a variant of hpccoll beside the defaults, as flat:algorithm=ring; may be repeated",
    )  # fmt: skip
    group.add_argument(
        "--against", default="", metavar="NAMES",
        help=f"peers in the same run: {','.join(PEERS)}; NAME=FOLDER for one in a virtual environment of its own",
    )  # fmt: skip
    group.add_argument("--named", action="store_true", help="also calls of hpccoll with a name, beside those without")
    group.add_argument("--plan", action="store_true", help="also persistent operations of hpccoll")
    group.add_argument(
        "--place", choices=("both", *PLACES), default="both",
        help="results in arrays of their own, in place of the inputs, or both; reductions have the choice (both)",
    )  # fmt: skip
    group.add_argument(
        "--inputs", choices=("written", "kept"), default="written",
        help="the ranks write their inputs before each call, which takes no part in the time, or never (written)",
    )  # fmt: skip
    group.add_argument(
        "--busy", type=int, default=0, metavar="N", help="other load: N processes per core that compute meanwhile (0)"
    )


def _how(group: Any) -> None:
    group.add_argument(
        "--width", type=zero_or_more, default=Limits.width,
        help=f"repeat until half of the 95%% interval of the median is below this share of it ({Limits.width:g})",
    )  # fmt: skip
    group.add_argument("--seconds", type=zero_or_more, default=Limits.seconds, help="at most, per case and library (1)")
    most = "samples at most, per case and library (1000)"
    group.add_argument("--most", type=whole(1), default=Limits.most, help=most)
    group.add_argument("--least", type=whole(1), default=Limits.least, help="samples at least (10)")
    group.add_argument("--warmup", type=whole(0), default=Limits.warmup, help="calls before the first sample (5)")
    group.add_argument(
        "--synchronise", choices=("barrier", clocks.NAME), default=Limits.synchronise,
        help="start a sample after a barrier, or at an agreed time of synchronised clocks (barrier)",
    )  # fmt: skip


def _start(group: Any) -> None:
    group.add_argument("-np", "-n", dest="ranks", type=whole(1), help="ranks (default: one per core)")
    group.add_argument("--nodes", default="1", metavar="N", help="let the ranks act as N nodes")
    group.add_argument("--launches", type=whole(1), default=1, metavar="N", help="start the job N times (1)")
    group.add_argument("--timeout", type=above_zero, default=600, metavar="SECONDS", help="per launch (600)")


def _output(group: Any) -> None:
    group.add_argument("--out", type=Path, metavar="FILE.h5", help="all samples and all conditions, as HDF5")
    group.add_argument("--json", action="store_true", help="print JSON instead of a table")
    group.add_argument("--quiet", action="store_true", help="no table")
    group.add_argument("--facts", action="store_true", help="show: the conditions of the launches, too")
    group.add_argument("--mixed", action="store_true", help="merge: accept different versions and revisions")


def main(arguments: argparse.Namespace) -> int:
    """Measure, or work on files.

    :returns: the exit status: 0, 1 if results are refused, 2 if the arguments do not fit
    """
    try:
        if arguments.words[:1] and arguments.words[0] in ON_FILES:
            return on_files(arguments)
        if arguments.words[:1] == [RECORD]:
            return record_model(arguments)
        if startup.NAME in arguments.words:
            return start_up(arguments)
        request = read_request(arguments)
        launched = detect.place(inherited.environment()) is not None
        inside = arguments.in_job or (launched and arguments.ranks is None)  # -np in an interactive step starts a job
        return inside_a_job(arguments, request) if inside else from_outside(arguments, request)
    except (ResultsError, HpccollError) as error:
        if _rank() == 0 or not isinstance(error, ResultsError):  # a ResultsError is the same on all ranks
            print(f"hpccoll bench: {error}", file=sys.stderr, flush=True)
        else:
            time.sleep(UNTIL_SAID)
        return 1 if isinstance(error, ResultsError) else 2


def _rank() -> int:
    place = detect.place(inherited.environment())
    return (place.rank if place else 0) or 0


def _started() -> int:
    """Return the number of ranks that the launcher has started; 0: no launcher, or unknown."""
    place = detect.place(inherited.environment())
    return (place.size if place else 0) or 0


def read_request(arguments: argparse.Namespace) -> job.Request:
    """Read what to measure.

    :raises ResultsError: a name is unknown
    """
    asked = arguments.words or ["allreduce"]
    chosen = list(COLLECTIVES) if asked == ["all"] else list(dict.fromkeys(asked))
    dtypes = arguments.dtype.split(",")
    peers = list(dict.fromkeys(word for word in arguments.against.split(",") if word))
    _known("collective", chosen, (*COLLECTIVES, training.NAME, control.NAME, startup.NAME))
    _known("--dtype", dtypes, job.DTYPES)
    _known("--against", [word.partition("=")[0] for word in peers], (*PEERS, *NOT_HERE))
    for word in peers:
        if word in NOT_HERE:
            raise ResultsError(f"--against {word}: {NOT_HERE[word]}")
    if training.NAME in chosen:
        training.trace(arguments.model)
    least = max(LEAST, arguments.least)
    if arguments.most < least:
        raise ResultsError(f"--most {arguments.most}: a case has {least} samples at least (--least, from {LEAST} on)")
    if not 0 <= arguments.busy <= busy.MOST:
        raise ResultsError(f"--busy {arguments.busy}: from 0 to {busy.MOST} processes per core")
    return job.Request(
        tuple(chosen), tuple(arguments.sizes), tuple(dtypes), read_arms(arguments), tuple(peers),
        Limits(arguments.width, arguments.seconds, arguments.most, least, arguments.warmup,
               arguments.inputs == "written", arguments.synchronise),
        arguments.oversubscribed, arguments.expect or _started(), arguments.number, ("hpccoll", *sys.argv[1:]),
        arguments.model, arguments.compute, read_control(arguments), PLACES.get(arguments.place, (False, True)),
        read_styles(arguments), arguments.busy,
    )  # fmt: skip


def read_styles(arguments: argparse.Namespace) -> tuple[str, ...]:
    """Read how operations of hpccoll are called."""
    asked = ((NAMED, arguments.named), (PLAN, arguments.plan))
    return (UNNAMED, *(style for style, chosen in asked if chosen))


def read_virtual(arguments: argparse.Namespace) -> tuple[int, ...]:
    """Read numbers of virtual ranks.

    :raises ResultsError: a value is no number
    """
    words = [word for word in arguments.virtual.split(",") if word]
    if wrong := [word for word in words if not word.isdecimal() or int(word) < 1]:
        raise ResultsError(f"--virtual {wrong[0]}: numbers of ranks, as 6,1536,27648")
    return tuple(map(int, words))


def read_control(arguments: argparse.Namespace) -> control.Asked:
    """Read what to measure of the control plane.

    :raises ResultsError: a value is wrong
    """
    asked = control.Asked(tuple(arguments.tensors.split(",")), read_virtual(arguments))
    if control.NAME in arguments.words:
        control.check_memory(asked)
    return asked


def _known(what: str, words: list[str], known: Any) -> None:
    for word in words:
        if word not in known:
            raise ResultsError(f"{what} {word!r}: there are {', '.join(known)}")


def read_arms(arguments: argparse.Namespace) -> dict[str, Mapping[str, Any]]:
    """Read the variants of hpccoll: the defaults, one per net and one per --arm.

    :raises HpccollError: a knob or its value is wrong
    """
    arms: dict[str, Mapping[str, Any]] = {net: {"net": net} for net in filter(None, arguments.net.split(","))} or {
        "": {}
    }
    for text in arguments.arm:
        name, given, settings = text.partition(":")
        pairs = [setting.partition("=") for setting in settings.split(",")]
        if not given or not all(equals for _, equals, _ in pairs):
            raise ResultsError(f"--arm {text}: NAME:KNOB=VALUE, as ring:algorithm=ring")
        if not name or name in arms:
            raise ResultsError(f"--arm {text}: each variant has a name of its own")
        arms[name] = knobs({knob: value for knob, _, value in pairs})
    return arms


def knobs(texts: Mapping[str, str]) -> dict[str, Any]:
    """Give knobs their types and check their bounds, as for variables.

    :raises InvalidArgumentError: one is unknown or out of bounds
    """
    settings = config.read({config.variable(name): value for name, value in texts.items()})
    return {name: getattr(settings, name) for name in texts}


# ---- measuring -----------------------------------------------------------------------------------------


def inside_a_job(arguments: argparse.Namespace, request: job.Request) -> int:
    """Measure as one rank of a job that a launcher has started.

    :returns: the exit status
    """
    apart = [peer for peer in request.peers if "=" in peer]
    if apart:
        raise ResultsError(f"--against {apart[0]}: an environment of its own is another job: start without a launcher")
    live = not (arguments.quiet or arguments.json)
    shown = _rank() == 0 and (arguments.progress or sys.stderr.isatty())
    bar = Bar(len(request.collectives) * len(request.dtypes) * len(request.sizes), shown)
    measured = job.run(request, partial(_show_point, bar, live, []), lambda: check_output(arguments))
    bar.close()
    if measured is None:
        return 0
    report(measured, arguments, live)
    return 0


def _show_point(bar: Bar, live: bool, shown: list[Any], point: job.Point, cases: list[Case]) -> None:
    """Print the lines of a point as soon as it is measured; `shown` remembers the table that they belong to."""
    bar.step(f"{point.collective} {sizes.short(point.nbytes)}")
    _show_cases(bar, live, shown, cases, step=False)


def _show_cases(bar: Bar, live: bool, shown: list[Any], cases: list[Case], step: bool = True) -> None:
    if step:
        bar.step(cases[0].key.what)
    for case in cases if live else ():
        if shown != [table.same_table(case.key)]:
            shown[:] = [table.same_table(case.key)]
            bar.write(table.heading(case, {"hpccoll": case.facts["version"]}))
        bar.write(table.line(case))


def start_up(arguments: argparse.Namespace) -> int:
    """`startup`: measure one rank at a time; there is no job.

    :returns: the exit status
    """
    if arguments.words != [startup.NAME]:
        raise ResultsError(f"{startup.NAME}: it is measured alone, and without a launcher")
    check_output(arguments)
    live, shown = not (arguments.quiet or arguments.json), list[Any]()
    sizes_of = read_virtual(arguments)
    bar = Bar(len(sizes_of) * len(startup.PLACES), sys.stderr.isatty())
    progress = partial(_show_cases, bar, live, shown)
    found = startup.measured(sizes_of, max(LEAST, arguments.least), ("hpccoll", *sys.argv[1:]), progress)
    bar.close()
    report(found, arguments, live)
    return 0


def from_outside(arguments: argparse.Namespace, request: job.Request) -> int:
    """Start the jobs, and report them together.

    :returns: the exit status
    """
    files.check_h5py()
    check_output(arguments)
    launch = start.Launch(arguments.ranks or installed.cores(), arguments.nodes, arguments.launches, arguments.timeout)
    words = passed_on(arguments)
    with start.folder_of(arguments.out, [words, dataclasses.asdict(launch), request.peers]) as folder:
        measured = start.measured(words, launch, request.peers, folder)
        for facts in measured.launches:
            facts["command"] = " ".join(request.command)
        report(measured, arguments, False)
    return 0


def passed_on(arguments: argparse.Namespace) -> list[str]:
    """Return the options of this command that its ranks get."""
    words = [*arguments.words, "--sizes", ",".join(map(str, arguments.sizes)), "--dtype", arguments.dtype]
    words += ["--net", arguments.net] if arguments.net else []
    words += [word for arm in arguments.arm for word in ("--arm", arm)]
    for name in ("width", "seconds", "most", "least", "warmup", "synchronise", "model", "compute", "tensors",
                 "place", "inputs", "busy"):  # fmt: skip
        words += [f"--{name}", str(getattr(arguments, name))]
    words += [f"--{name}" for name in ("named", "plan") if getattr(arguments, name)]
    words += [f"--virtual={arguments.virtual}"]
    words += ["--progress"] if sys.stderr.isatty() else []
    return words + (["--oversubscribed"] if arguments.oversubscribed else [])


def check_output(arguments: argparse.Namespace) -> None:
    """Check before anything is measured.

    :raises ResultsError: the file of results could not be written
    """
    if arguments.out:
        files.check_h5py()
        files.check_place(arguments.out)


def report(measured: Results, arguments: argparse.Namespace, printed: bool) -> None:
    """Write the file, and print the requested output.

    :param printed: the lines of the table are printed already
    """
    if arguments.out:
        files.write(arguments.out, measured)
    if arguments.json:
        print(table.as_json(measured))
    elif printed:
        print("\n".join(table.closing(measured)))
    elif not arguments.quiet:
        print(table.text(measured))


# ---- files -----------------------------------------------------------------------------------------------


def on_files(arguments: argparse.Namespace) -> int:
    """`show`, `merge` and `compare`.

    :returns: the exit status; of `compare` 3 if the second file is slower in a case, 4 if a case has no verdict
    :raises ResultsError: a file cannot be read, or the files do not fit together
    """
    action, *names = arguments.words
    if not names or (action == "compare" and len(names) != 2):
        raise ResultsError(
            f"{action}: which files? hpccoll bench {action} {'a.h5 b.h5' if action != 'show' else 'a.h5'}"
        )
    several = [files.read(Path(name)) for name in names]
    if action == "compare":
        compared = compare.compare(*several)
        if arguments.json:
            print(compare.as_json(compared, *several))
        elif not arguments.quiet:
            print("\n".join(filter(None, (compare.text(compared), compare.left_out(*several)))))
        return compare.status(compared)
    if action == "merge" and not arguments.out:
        raise ResultsError("merge: into which file? --out FILE.h5")
    whole = results.merged(several, arguments.mixed)
    if action == "show" and arguments.facts:
        print(table.described(whole))
    report(whole, arguments, False)
    return 0


def record_model(arguments: argparse.Namespace) -> int:
    """`record`: write the trace of a model.

    :returns: the exit status
    :raises ResultsError: there is no such model
    """
    if len(arguments.words) != 2 or not arguments.out or arguments.out.suffix != ".json":
        raise ResultsError("record: hpccoll bench record FILE.py:FUNCTION --out TRACE.json")
    print(record.record(arguments.words[1], arguments.out))
    return 0
