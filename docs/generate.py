# SPDX-License-Identifier: Apache-2.0
"""Draw the tables of the docs from the code.

python docs/generate.py            rewrite what stands between <!-- generated: NAME --> and <!-- end -->
python docs/generate.py --check    change nothing; exit status 1 if a page is not up to date
"""

import argparse
import dataclasses
import functools
import inspect
import json
import math
import re
import runpy
import sys
import textwrap
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from hpccoll import _core, _cuda, config, errors
from hpccoll.horovod import environment
from hpccoll.not_there import INSTEAD
from hpccoll.not_there import NAMES as OF_FRONT_ENDS
from hpccoll.spark.estimators import parameters
from hpccoll.tools import lint
from hpccoll.tools.doctor import training
from hpccoll.tools.horovodrun import FLAGS
from hpccoll.tools.model import choice
from hpccoll.tools.model.predict import Layout
from hpccoll.tools.submit import cli, script, site

HERE = Path(__file__).resolve().parent
SIMULATOR = HERE.parent / "benchmarks" / "simulator"
SECTION = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    lines = [list(head), *([str(cell) for cell in row] for row in rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def merged(rows: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Make one row of all rows that say the same in their second cell, in the place of the first of them."""
    names: dict[str, list[str]] = {}
    for name, text in rows:
        names.setdefault(text, []).append(name)
    return [(", ".join(those), text) for text, those in names.items()]


def filled(text: str, indent: str = "") -> str:
    return textwrap.fill(text, 120, subsequent_indent=indent, break_on_hyphens=False)


def knobs() -> str:
    """One row per field of Config."""
    return table(
        ("variable", "meaning", "default", "unit", "allowed"),
        ((f"`{k.variable}`", k.doc, f"`{k.default}`", k.unit, k.bounds) for k in config.knobs()),
    )


def exceptions() -> str:
    """The tree of exception classes with their first sentences."""

    def branch(cls: type, depth: int) -> list[str]:
        first_line = (inspect.getdoc(cls) or "").split("\n\n")[0].replace("\n", " ")
        children = [child for child in cls.__subclasses__() if child.__module__ == errors.__name__]
        below = [line for child in children for line in branch(child, depth + 1)]
        return [f"{'  ' * depth}- `{cls.__name__}`: {first_line}", *below]

    return "\n".join(branch(errors.HpccollError, 0))


def horovod() -> str:
    """One row per HOROVOD_ variable that is known."""
    rows = ((f"`{old}`", new) for old, new in environment.counterparts().items())
    return table(("Horovod", "hpccoll"), merged(rows))


def horovodrun() -> str:
    """One row per flag of horovodrun."""
    rows = []
    for flag in FLAGS:
        what, _, option = flag.becomes.partition(" ")
        answers = {
            "run": f"`hpccoll run {option}`",
            "ssh": f"option `{option}` of ssh, through the launcher's variables",
            "nothing": "no effect; a line says why",
            "refused": f"refused: {flag.text}",
            "variables": f"variables: {flag.text}",
        }
        if option in flag.names.split():
            answers["run"] = "the same option of `hpccoll run`, which has one of these names"
        if flag.becomes in environment.counterparts():
            answers[what] = "as Horovod's variable of this name, above"
        rows.append((f"`{flag.names.replace(' ', '`, `')}`", answers.get(what, flag.text)))
    return table(("horovodrun", "here"), merged(rows))


EXACT = [name for name in _core.DTYPES if not name.startswith(("float", "bfloat", "complex"))]


def not_there() -> str:
    """Modules of Horovod that hpccoll does not have."""
    return table(
        ("module", "why, and what to use instead"), merged((f"`{name}`", why) for name, why in INSTEAD.items())
    )


def names_not_there() -> str:
    """Names of Horovod's front ends that hpccoll's do not have."""
    names = sorted({name for names in OF_FRONT_ENDS.values() for name in names})
    return filled(", ".join(f"`{name}`" for name in names))


def estimators() -> str:
    """One row per parameter of the estimators for Spark."""
    of_lightning = tuple(one for one in parameters.LIGHTNING if one not in parameters.SHARED)
    tables = (
        *(("", parameters.SHARED), ("torch: ", parameters.TORCH), ("Keras: ", parameters.KERAS)),
        ("Lightning: ", of_lightning),
    )
    rows = [
        (f"`{one.name}`", f"{whose}{one.doc}", f"`{one.default}`") for whose, table_of in tables for one in table_of
    ]
    return table(("parameter", "meaning", "default"), rows)


def estimators_refused() -> str:
    """Horovod's parameters that the estimators for Spark refuse."""
    of_lightning = ((name, f"Lightning: {why}") for name, why in parameters.OF_THE_MODULE.items())
    rows = (*parameters.REFUSED.items(), *of_lightning)
    return table(("parameter", "why"), merged((f"`{name}`", why) for name, why in rows))


def bound(reduction: str, dtype: str) -> str:
    """Bound the relative error, as docs/reductions.md writes it; tests/api/test_bounds.py checks results by it."""
    if dtype in EXACT or reduction not in ("SUM", "AVERAGE", "PRODUCT"):
        return "exact"
    if dtype in ("float16", "bfloat16"):
        return {"PRODUCT": "(p+1)u + (p-1)v", "AVERAGE": "(1+s)u + pv"}.get(reduction, "(1+s)u + (p-1)v")
    return "√5(p-1)u" if dtype.startswith("complex") and reduction == "PRODUCT" else "(p-1)u"


NAMES = [name for name in _core.REDUCTIONS if name != "ADASUM"]
"""The reductions that the core has: ADASUM is made of several operations, by front ends."""


def reductions() -> str:
    """Where each reduction is defined, as the kernels have it, and how far it may be off."""

    def cell(name: str, dtype: int) -> str:
        defined = _core.reduction_defined(_core.REDUCTIONS.index(name), dtype)
        return bound(name, _core.DTYPES[dtype]) if defined else ""

    rows = [(f"`{name}`", *(cell(reduction, dtype) for reduction in NAMES)) for dtype, name in enumerate(_core.DTYPES)]
    return table(("dtype", *(f"`{name}`" for name in NAMES)), rows)


def device_ways() -> str:
    """How each allreduce in device memory runs where NCCL is used."""
    allreduce = _core.OPERATIONS.index("allreduce")
    rows = [
        (
            f"`{name}`",
            *(
                _cuda.device_way(allreduce, reduction, dtype) if _core.reduction_defined(reduction, dtype) else ""
                for reduction in map(_core.REDUCTIONS.index, NAMES)
            ),
        )
        for dtype, name in enumerate(_core.DTYPES)
    ]
    return table(("dtype", *(f"`{name}`" for name in NAMES)), rows)


def first_script() -> str:
    """What `hpccoll submit` makes of the page's first command."""
    command = "--site generic-cpu --nodes 2 --time 2:00 train.py --lr 0.1".split()
    parser = argparse.ArgumentParser()
    cli.add_arguments(parser)
    where, (request,) = cli.read_arguments(parser.parse_args(command), command)
    return f"```text\n{script.render(where, request)}```"


def site_keys() -> str:
    """The keys of a site profile, of the file itself and of its tables."""
    tables = {"": site.Site, "node.": site.Node, "node.gpus[].": site.Gpu, "node.nics[].": site.Nic}
    rows = [
        (f"`{prefix}{field.name}`", "" if required(field) else shown(field), site.meanings(kind)[field.name])
        for prefix, kind in tables.items()
        for field in dataclasses.fields(kind)
    ]
    return table(("key", "default", "meaning"), rows)


def required(field: "dataclasses.Field[object]") -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def shown(field: "dataclasses.Field[object]") -> str:
    default = field.default_factory() if callable(field.default_factory) else field.default
    return f"`{default!r}`".replace("'", '"').replace("True", "true").replace("False", "false")


def rules(scheduler: str) -> str:
    """What `hpccoll lint` finds in scripts for a scheduler."""
    names: dict[str, list[str]] = {"error": [], "warning": []}
    for rule in lint.RULES[scheduler]:
        names[rule.severity].append(f"`{rule.name}`")
    lines = [f"- {severity.capitalize()}s: {', '.join(those)}" for severity, those in names.items()]
    return "\n".join(filled(line, "  ") for line in lines)


def lint_slurm() -> str:
    """The rules for Slurm."""
    return rules("slurm")


def lint_lsf() -> str:
    """The rules for LSF."""
    return rules("lsf")


def decisions() -> str:
    """One row per decision record: its number and title, as a link."""
    pages = sorted((HERE / "decisions").glob("0*.md"))
    heads = [page.read_text().split("\n", 1)[0].removeprefix("# ").partition(". ") for page in pages]
    return table(("", "decision"), ((n, f"[{t}]({p.name})") for p, (n, _, t) in zip(pages, heads, strict=True)))


def needs() -> str:
    """Bandwidth that a training needs for 90 % efficiency, by the doctor's formula."""
    rows = []
    for name, model in training.MODELS.items():
        if model.compute is None:
            continue
        for wire, nbytes in (("FP32", 4 * model.parameters), ("FP16", 2 * model.parameters)):
            steps = [training.Training(name, nbytes, model.compute, nodes, 0.5) for nodes in (2, 16, 256)]
            network = training.Network(math.inf, 10e-6, math.inf)
            bits = [f"{8e-9 * training.needed_bandwidth(step, network):.3g}" for step in steps]
            rows.append((name, wire, f"{nbytes / 1e6:.4g} MB", f"{model.compute * 1e3:.3g} ms", *bits))
    return table(("model", "between nodes", "bytes", "computation", "2 nodes", "16 nodes", "256 nodes"), rows)


def choices() -> str:
    """Say what runs between nodes, by nodes and size, as the C code chooses."""
    columns = (8, 4 << 10, 64 << 10, 1 << 20, 16 << 20)
    rows = [
        (f"{name}, {nodes:,}", *(choice.answer(Layout(nodes, 1), "float32", size, name).how for size in columns))
        for name in choice.OPERATIONS
        for nodes in (2, 8, 64, 1024)
    ]
    return table(("operation, nodes", "8 B", "4 KiB", "64 KiB", "1 MiB", "16 MiB"), rows).replace(" x ", "x")


@functools.cache
def simulation() -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the names of benchmarks/simulator/study.py, and its results."""
    sys.path.insert(0, str(SIMULATOR))
    results = SIMULATOR.parent / "results" / "simulator.jsonl"
    return runpy.run_path(str(SIMULATOR / "study.py")), [json.loads(line) for line in results.read_text().splitlines()]


def simulated(curves: str, form: str) -> str:
    """Return some values of a picture of the simulator as a table."""
    study, results = simulation()
    return str(study["by_ranks"](study[curves](results), form))


def simulated_agreements() -> str:
    """Simulated agreements on a step."""
    return simulated("agreement_curves", ".0f")


def simulated_efficiency() -> str:
    """Simulated steps."""
    return simulated("efficiency_curves", ".3f")


def simulated_votes() -> str:
    """Simulated blocking calls of few bytes."""
    study, results = simulation()
    return str(study["votes"](results))


def simulated_allreduces() -> str:
    """Simulated allreduces by nodes and size."""
    study, results = simulation()
    return str(study["by_nodes"](results))


def simulated_variants() -> str:
    """Simulated allreduces in other ways, with something in the way, or of nodes in other orders."""
    study, results = simulation()
    return f"{study['variants'](results)}\n\n{study['orders'](results)}"


def simulated_coarseness() -> str:
    """What coarser simulations change, and when the simulations were made."""
    study, results = simulation()
    return f"{study['coarseness'](results)} {study['dates'](results)}"


def simulated_disturbances() -> str:
    """What disturbs simulated agreements."""
    study, results = simulation()
    return str(study["disturbances"](results))


def simulated_line() -> str:
    """How good the line through smaller batches is."""
    study, results = simulation()
    return str(study["line_check"](results))


SECTIONS: dict[str, Callable[[], str]] = {
    section.__name__: section
    for section in (
        *(knobs, exceptions, horovod, horovodrun, not_there, names_not_there, reductions, device_ways),
        *(estimators, estimators_refused),
        *(needs, choices, simulated_agreements, simulated_votes, simulated_allreduces),
        *(simulated_variants, simulated_coarseness, simulated_efficiency, simulated_line, simulated_disturbances),
        *(first_script, site_keys, lint_slurm, lint_lsf, decisions),
    )
}


def generated(text: str) -> str:
    return SECTION.sub(lambda match: f"{match[1]}{SECTIONS[match[2]]()}\n{match[3]}", text)


def main() -> int:
    stale = []
    for page in sorted(HERE.rglob("*.md")):
        text = page.read_text()
        if (fresh := generated(text)) != text:
            stale.append(page.name)
            if "--check" not in sys.argv:
                page.write_text(fresh)
    print(f"{'not up to date' if '--check' in sys.argv else 'rewritten'}: {', '.join(stale) or 'none'}")
    return int(bool(stale) and "--check" in sys.argv)


if __name__ == "__main__":
    sys.exit(main())
