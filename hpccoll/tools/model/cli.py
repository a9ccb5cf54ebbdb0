# SPDX-License-Identifier: Apache-2.0
"""The command `hpccoll model`: fit parameters to a file of `hpccoll bench`, and predict other numbers of nodes."""

import argparse
import json
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from hpccoll import config
from hpccoll.errors import HpccollError
from hpccoll.tools.bench import files, results, sizes, statistics, training
from hpccoll.tools.bench.results import Results, ResultsError
from hpccoll.tools.model import choice, fit, predict, startup
from hpccoll.tools.model.fit import Fitted, UndeterminedError
from hpccoll.tools.model.messages import SIZES
from hpccoll.tools.model.predict import NAMES, Layout, Parameters
from hpccoll.tools.numbers import above_zero, whole, wholes, zero_or_more

MEANINGS = {
    "hop": "control message inside a node",
    "edge": "control message between nodes",
    "batch": "batch, besides messages and bytes",
    "touch": "byte packed, summed or copied by a rank",
    "alpha": "message of data between nodes",
    "overhead": "further message that comes with another",
    "beta": "byte on a node's link, one direction",
    "start": "init(), computed by a rank",
    "member": "rank of the job, in init()",
}


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Describe `hpccoll model`."""
    parser = commands.add_parser("model", help="fit a cost model to measured times, and predict more nodes")
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    fitting = actions.add_parser("fit", help="find the parameters that explain files of hpccoll bench or study")
    fitting.add_argument("files", nargs="+", type=Path, metavar="FILE.h5")
    fitting.add_argument("--most-nodes", type=whole(0), default=0, metavar="N", help="leave out cases on more nodes")
    fitting.add_argument("--out", type=Path, metavar="MODEL.json", help="keep the parameters")
    fitting.add_argument("--json", action="store_true", help="print JSON instead of a table")
    fitting.set_defaults(main=_guarded(fit_files), further=("files", Path))
    predicting = actions.add_parser("predict", help="seconds of agreements, allreduces and steps on so many nodes")
    predicting.add_argument("model", type=Path, metavar="MODEL.json")
    _where(predicting)
    predicting.add_argument(
        "--sizes", type=sizes.sizes, default="8:64M:8", help="of an allreduce, as 8:64M:4 or 4,64K (8:64M:8)"
    )
    predicting.add_argument("--dtype", default="float32", choices=sorted(SIZES), help="(float32)")
    predicting.add_argument("--model", dest="trace", metavar="TRACE", help=f"a step: {', '.join(training.models())}")
    predicting.add_argument("--compute", type=above_zero, default=0.111, help="seconds of computing in a step (0.111)")
    predicting.add_argument(
        "--against", type=Path, action="append", default=[], metavar="FILE.h5",
        help="compare with what was measured; status 3 if the model is off by more than --within",
    )  # fmt: skip
    predicting.add_argument("--within", type=zero_or_more, default=0.1, help="allowed error of --against (0.1)")
    predicting.add_argument("--from-size", type=sizes.number, default=0, help="--against: only sizes from this on")
    predicting.add_argument("--json", action="store_true", help="print JSON instead of a table")
    predicting.set_defaults(main=_guarded(predict_nodes))
    choosing = actions.add_parser("choice", help="what an operation does between so many nodes, without measurements")
    choosing.add_argument(
        "operations",
        nargs="*",
        metavar="OPERATION",
        help=f"{', '.join(choice.OPERATIONS)} (allreduce)",
    )
    _where(choosing)
    choosing.add_argument("--sizes", type=sizes.sizes, default="8:64M:8", help="as 8:64M:4 or 4,64K (8:64M:8)")
    choosing.add_argument("--dtype", default="float32", choices=sorted(SIZES), help="(float32)")
    choosing.add_argument("--json", action="store_true", help="print JSON instead of a table")
    choosing.set_defaults(main=_guarded(choose_between_nodes), further=("operations", str))


def _where(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--nodes", type=wholes(1), default="", metavar="N,N,...", help="as 1,16,4608")
    parser.add_argument("--ranks-per-node", type=whole(1), help="(those of the measured files, else 1)")
    parser.add_argument("--algorithm", default="auto", help="HPCCOLL_ALGORITHM (auto)")
    parser.add_argument("--exact-sums", action="store_true", help="HPCCOLL_EXACT_SUMS=1")
    parser.add_argument("--rails", type=whole(0), default=0, help="HPCCOLL_RAILS (0: chosen)")
    parser.add_argument("--chunk-bytes", type=sizes.number, default=0, help="HPCCOLL_CHUNK_BYTES (0: chosen)")
    parser.add_argument("--wire", default="none", choices=["none", "fp16", "bf16"], help="HPCCOLL_WIRE (none)")
    parser.add_argument("--fanout", type=whole(1), default=16, help="HPCCOLL_FANOUT (16)")
    parser.add_argument(
        "--latency-bytes", type=sizes.number, default=Layout.latency_bytes, help="HPCCOLL_LATENCY_BYTES (%(default)s)"
    )


def _guarded(function: Callable[[argparse.Namespace], int]) -> Callable[[argparse.Namespace], int]:
    """Return a command that prints an error as one line, and ends with status 1."""

    def main(arguments: argparse.Namespace) -> int:
        try:
            return function(arguments)
        except HpccollError as error:
            print(f"hpccoll model: {error}", file=sys.stderr, flush=True)
            return 1

    return main


def read_all(paths: list[Path]) -> Results:
    """Return the results of several files together."""
    return results.merged([files.read(path) for path in paths], mixed=True)


# ---- fit -----------------------------------------------------------------------------------------------------


def fit_files(arguments: argparse.Namespace) -> int:
    """Fit the parameters, print them, and write the file.

    :returns: the exit status, 0
    """
    source = ", ".join(str(path) for path in arguments.files)
    fitted = fit.fit(read_all(arguments.files), arguments.most_nodes, source=source)
    if arguments.out:
        try:
            fitted.write(arguments.out)
        except OSError as error:
            raise ResultsError(f"{arguments.out} could not be written: {error}") from error
    print(as_json(fitted) if arguments.json else text(fitted))
    return 0


def as_json(fitted: Fitted) -> str:
    """Return the parameters with their intervals."""
    found: dict[str, Any] = {"cases": fitted.cases, "nodes": fitted.nodes}
    for name in NAMES:
        low, high = fitted.range(name)
        value = getattr(fitted.parameters, name)
        found[name] = {"seconds": value, "low": low, "high": high, "unknown": name in fitted.unknown}
        if name in fitted.unknown:
            found[name]["measure"] = fit.DETERMINING[name]
    return json.dumps(found)


def text(fitted: Fitted) -> str:
    """Return a table of the parameters."""
    lines = [f"{'parameter':<10} {'seconds':>10} {'95 % interval':>29}  of one"]
    for name in NAMES:
        low, high = fitted.range(name)
        value, known = f"{getattr(fitted.parameters, name):.3g}", f"{low:>10.3g} .. {high:<10.3g}"
        if name in fitted.unknown:
            value, known = "?", "not determined"
        lines.append(f"{name:<10} {value:>10} {known:>29}  {MEANINGS[name]}")
    lines += [f"# {name} is not determined: measure {fit.DETERMINING[name]}" for name in fitted.unknown]
    if fitted.unknown:
        lines.append("# if the files have such a case already, its times vary too much: measure more launches")
    nodes, sizes_there = ", ".join(map(str, fitted.nodes)), [size for size, _ in fitted.residuals]
    lines.append(f"# fitted to {fitted.cases} cases; nodes: {nodes}; ranks per node: {fitted.per_node}")
    lines += [f"# error of the fit on {fitted.nodes[-1]} nodes at {sizes.short(size)}: {fitted.error(size):.1%}"
              for size in (min(sizes_there), max(sizes_there))]  # fmt: skip
    if fitted.launches < statistics.ENOUGH:
        lines.append(
            f"# the intervals do not know how launches differ: a case has {fitted.launches}, and they need "
            f"{statistics.ENOUGH}"
        )
    return "\n".join(lines)


# ---- predict -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Line:
    """A prediction, and the measured value if there is one."""

    what: str
    nodes: int
    ranks: int
    bytes: int
    seconds: float
    low: float
    high: float
    measured: float | None = None
    efficiency: float | None = None
    refused: str = ""
    """Why there is no prediction: the parameters that the fitted cases do not determine, and cases that would."""

    @property
    def error(self) -> float | None:
        """The prediction's relative error."""
        return None if self.measured is None or self.refused else self.seconds / self.measured - 1


Asked = tuple[float, float, float, str]


def _asked(fitted: Fitted, seconds: Callable[[Parameters], float], nbytes: int) -> Asked:
    """Return a prediction with its interval, or the reason why there is none."""
    try:
        return *fitted.interval(seconds, nbytes), ""
    except UndeterminedError as error:
        return math.nan, math.nan, math.nan, str(error)


def _line(what: str, where: Layout, nbytes: int, asked: Asked, **more: Any) -> Line:
    return Line(what, where.nodes, where.nodes * where.per_node, nbytes, *asked[:3], refused=asked[3], **more)


def predict_nodes(arguments: argparse.Namespace) -> int:
    """Predict times, and compare them with measured ones.

    :returns: the exit status: 3 if a prediction is off by more than --within
    :raises ResultsError: nothing was asked for, or the fitted cases determine none of it
    """
    fitted = fit.read(arguments.model)
    lines = against(fitted, arguments) if arguments.against else predicted(fitted, arguments)
    if not lines:
        raise ResultsError("predict what? --nodes 4,8, or --against FILE.h5 with cases that the model knows")
    print(json.dumps(list(map(_record, lines))) if arguments.json else table(lines, fitted))
    if all(line.refused for line in lines):
        raise ResultsError("the fitted cases determine none of it, see above")
    off = [line for line in lines if line.error is not None and abs(line.error) > arguments.within]
    return 3 if off else 0


def layouts(arguments: argparse.Namespace, per_node: int) -> list[Layout]:
    """Return the placements that the options ask for.

    :param per_node: ranks per node, where no option says it
    :raises InvalidArgumentError: a knob is out of its bounds
    """
    knobs = ("algorithm", "rails", "chunk_bytes", "latency_bytes", "fanout")
    asked = {name: getattr(arguments, name) for name in knobs}
    config.read({config.variable(name): str(value) for name, value in asked.items()})
    return [
        Layout(nodes, arguments.ranks_per_node or per_node, arguments.fanout, arguments.algorithm, arguments.rails,
               arguments.chunk_bytes, arguments.wire, arguments.latency_bytes, arguments.exact_sums)
        for nodes in arguments.nodes
    ]  # fmt: skip


def choose_between_nodes(arguments: argparse.Namespace) -> int:
    """Print what operations do between nodes.

    :returns: the exit status, 0
    :raises ResultsError: no number of nodes was given, or an operation has no choice
    """
    operations = arguments.operations or ["allreduce"]
    if unknown := [name for name in operations if name not in choice.OPERATIONS]:
        raise ResultsError(
            f"{unknown[0]!r} is none of {', '.join(choice.OPERATIONS)}, which have a choice between nodes"
        )
    several = [where for where in layouts(arguments, 1) if where.nodes > 1]
    if not several:
        raise ResultsError("between how many nodes? --nodes 4,4608")
    answers = [
        choice.answer(where, arguments.dtype, size, operation)
        for operation in operations
        for where in several
        for size in arguments.sizes
    ]
    print(json.dumps([vars(one) for one in answers]) if arguments.json else choice.table(answers))
    return 0


def _record(line: Line) -> dict[str, Any]:
    """Return a line as JSON, which has no nan."""
    values = vars(line) | {"error": line.error}
    return {name: None if isinstance(value, float) and math.isnan(value) else value for name, value in values.items()}


def predicted(fitted: Fitted, arguments: argparse.Namespace) -> list[Line]:
    """Return lines for any numbers of nodes."""
    lines = []
    for where in layouts(arguments, fitted.per_node):
        lines += _for_layout(fitted, where, arguments)
    return lines


def _for_layout(fitted: Fitted, where: Layout, arguments: argparse.Namespace) -> list[Line]:
    if arguments.trace:
        trace = training.trace(arguments.trace)
        compute = arguments.compute
        gradients = [(n, share * compute) for n, share in zip(trace.elements, trace.ready, strict=True)]
        step = _asked(
            fitted, lambda p: predict.step(p, where, gradients, compute, arguments.dtype).seconds, trace.nbytes
        )
        return [_line(f"step {trace.model}", where, trace.nbytes, step, efficiency=compute / step[0])]
    received = startup.start(where.nodes, where.per_node).received
    lines = [
        _line(f"init(), {received:,} bytes received", where, 0, _asked(fitted, lambda p: predict.init(p, where), 0)),
        _line("agreement", where, 0, _asked(fitted, lambda p: predict.agree(p, where), 0)),
    ]
    for size in arguments.sizes:
        seconds = partial(predict.allreduce, where=where, dtype=arguments.dtype, nbytes=size)
        lines.append(_line("allreduce", where, size, _asked(fitted, seconds, size)))
    return lines


def against(fitted: Fitted, arguments: argparse.Namespace) -> list[Line]:
    """Return lines for measured cases."""
    lines, measured = [], read_all(arguments.against)
    for case in measured.cases.values():
        seconds = fit.predictor(case, fit.knobs_of(case, measured))
        nodes = arguments.nodes
        if seconds is None or case.key.bytes < arguments.from_size or (nodes and case.key.nodes not in nodes):
            continue
        key, found = case.key, _asked(fitted, seconds, case.key.bytes)
        lines.append(Line(f"{key.what} {key.arm}".strip(), key.nodes, key.ranks, key.bytes, *found[:3],
                          fit.median(case), refused=found[3]))  # fmt: skip
    return sorted(lines, key=lambda line: (line.what, line.nodes, line.bytes))


def _micro(seconds: float) -> str:
    """Write microseconds, with a digit after the point for short times."""
    return f"{1e6 * seconds:,.{1 if seconds < 1e-3 else 0}f}"


def table(lines: list[Line], fitted: Fitted) -> str:
    """Return the lines as text."""
    found = [f"{'nodes':>6} {'ranks':>7} {'size':>7} {'predicted(us)':>13} {'95 % interval(us)':>27}  what"]
    for line in lines:
        if line.refused:
            where = f"{line.nodes:>6} {line.ranks:>7} {sizes.short(line.bytes):>7}"
            found.append(f"{where} {'?':>13} {'not determined':>27}  {line.what}: {line.refused}")
            continue
        extra = "" if line.error is None else f"; measured {_micro(line.measured or 0)}, error {line.error:+.1%}"
        extra += "" if line.efficiency is None else f"; computing {line.efficiency:.1%} of it"
        interval = f"{_micro(line.low)} .. {_micro(line.high)}"
        found.append(
            f"{line.nodes:>6} {line.ranks:>7} {sizes.short(line.bytes):>7} {_micro(line.seconds):>13} {interval:>27}  "
            f"{line.what}{extra}"
        )
    errors = [abs(line.error) for line in lines if line.error is not None]
    found.append(
        f"# predicted, not measured: the model of {fitted.source} on {', '.join(map(str, fitted.nodes))} nodes"
    )
    if errors:
        outside = sum(not line.low <= (line.measured or 0) <= line.high for line in lines if line.error is not None)
        found.append(
            f"# largest error {max(errors):.1%}, mean {sum(errors) / len(errors):.1%}; {outside} of {len(errors)} "
            "measured times are outside of their interval"
        )
    return "\n".join(found)
