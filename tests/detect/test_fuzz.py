# SPDX-License-Identifier: Apache-2.0
"""What a launcher or a user hands over, mangled: environment, host files, host lists of commands, knobs.

Each is read or refused with an error of hpccoll; nothing else is raised, and no value takes all memory or time.
"""

import random
import tomllib
from pathlib import Path

import pytest

from hpccoll import config, detect, errors, scheduler
from hpccoll.detect import contradictions
from hpccoll.tools.launch.job import HOST_NAME, parse_hosts

FILES = sorted((Path(__file__).parent / "recorded").glob("*.toml"))
PIECES = ["", "[", "]", ",", "-", "[1-3]", "[1-999999999]", "[9-1]", "[-]", "(x2)", "(x999999999)", "(x-1)", "=", ":"]
PIECES += [
    "\n",
    "\0",
    " ",
    "-1",
    "9" * 30,
    "9" * 5000,
    "\N{ARABIC-INDIC DIGIT THREE}",
    "²",
    "\udcff",
    "e",
    "nan",
    "inf",
]
PIECES += ["h1:2", "h2", "-oProxyCommand=id", "$(id)", "`id`", ";id", "/", "..", "%s", "{0}"]


def mangled(rng: random.Random, text: str) -> str:
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(text) + 1)
        text = text[:at] + rng.choice([*PIECES, text[at : at + 3]]) + text[at + rng.randint(0, 4) :]
    return text


def starts() -> list[tuple[dict[str, str], dict[str, str]]]:
    """The environment of each recorded rank, and the files that it names."""
    found = []
    for file in FILES:
        job = tomllib.loads(file.read_text())
        found += [(rank["environment"], job.get("files", {})) for rank in job["ranks"]]
    return found


def fuzz_environment(count: int) -> int:
    rng, real, refused = random.Random(1), starts(), 0
    for _ in range(count):
        environment, files = rng.choice(real)
        names = rng.sample(sorted(environment), min(3, len(environment)))
        bad = environment | {name: mangled(rng, environment[name]) for name in names}
        read = dict.fromkeys(files.values(), "") | {name: mangled(rng, text) for name, text in files.items()}
        detect.place(bad)
        contradictions.tasks(bad)
        contradictions.singleton_problem(bad, 1)
        try:
            scheduler.end_of_job(bad, ask=False)
            detect.allocation(bad, lambda path, read=read: read.get(path, ""))  # type: ignore[misc]
        except errors.InvalidArgumentError:
            refused += 1
    return refused


def fuzz_knobs(count: int) -> int:
    rng, refused = random.Random(2), 0
    knobs = config.knobs()
    for _ in range(count):
        knob = rng.choice(knobs)
        try:
            config.read({knob.variable: mangled(rng, knob.default)})
        except errors.InvalidArgumentError:
            refused += 1
    return refused


def fuzz_hosts(count: int) -> int:
    rng, refused = random.Random(3), 0
    for _ in range(count):
        text = mangled(rng, "h1:2,user@node-2.site:16")
        try:
            for host in parse_hosts(text):
                assert HOST_NAME.fullmatch(host.name) and not host.name.startswith("-"), text
        except errors.HpccollError:
            refused += 1
    return refused


def test_environments() -> None:
    assert fuzz_environment(1500) > 10


def test_knobs_and_hosts() -> None:
    assert fuzz_knobs(2000) > 500
    assert fuzz_hosts(2000) > 500


@pytest.mark.slow
def test_many() -> None:
    assert fuzz_environment(30_000) > 300
    assert fuzz_knobs(30_000) > 5000
    assert fuzz_hosts(30_000) > 5000
