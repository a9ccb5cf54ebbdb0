# SPDX-License-Identifier: Apache-2.0
"""The C programs of this folder: what they are made of. `build` is compile_c of tests/conftest.py."""

from collections.abc import Callable, Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ENGINE = "ext/core/*.c"
SIMULATOR = "tests/core/simulator/*.c"
STATES = "tests/core/fuzz/states.c"
SANITIZE = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer")
Build = Callable[..., Path]


def simulator(build: Build, *flags: str, engine: Iterable[str] = (ENGINE,)) -> Path:
    """The program that runs random programs on virtual ranks."""
    return build("tests/core/sim.c", SIMULATOR, *engine, flags=flags, name="sim")


def starve(build: Build, starving: tuple[str, ...]) -> Path:
    """Random programs in which an allocation of an engine fails."""
    flags = (*SANITIZE, *starving)
    return build("tests/core/starve.c", SIMULATOR, ENGINE, flags=flags, name="starve")


def transcript(build: Build) -> Path:
    """The program that drives a few engines by hand."""
    return build("tests/core/transcript/*.c", ENGINE, flags=SANITIZE, name="transcript")


def steady(build: Build) -> Path:
    """Names that never come again: how much memory is held."""
    parts = ("tests/core/transcript/cluster.c", "tests/core/transcript/describe.c")
    return build("tests/core/steady.c", *parts, ENGINE, flags=SANITIZE, name="steady")


def fuzzer(build: Build) -> Path:
    """The libFuzzer harness of the wire decoder. Needs clang and its run-time library."""
    flags = ("-O2", "-fsanitize=fuzzer", *SANITIZE)
    sources = ("tests/core/fuzz/fuzz_wire.c", STATES, SIMULATOR, ENGINE)
    return build(*sources, flags=flags, compiler="clang", name="fuzz_wire")


def mutator(build: Build) -> Path:
    """The same harness with inputs of our own instead of libFuzzer's: any compiler will do."""
    harness = ("tests/core/fuzz/mutate.c", "tests/core/fuzz/fuzz_wire.c", STATES)
    return build(*harness, SIMULATOR, ENGINE, flags=SANITIZE, name="mutate")


def seeds(build: Build) -> Path:
    """Writes the fuzzer's first inputs."""
    sources = ("tests/core/fuzz/seeds.c", STATES, SIMULATOR, ENGINE)
    return build(*sources, name="seeds")
