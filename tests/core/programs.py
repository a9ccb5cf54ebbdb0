# SPDX-License-Identifier: Apache-2.0
"""The sources of this folder's C programs. `build` is compile_c of tests/conftest.py."""

from collections.abc import Callable, Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ENGINE = "ext/core/*.c"
SLOTS = "ext/core/slots.c"
WITHOUT_SLOTS = tuple(f"ext/core/{file.name}" for file in sorted(ROOT.glob(ENGINE)) if file.name != "slots.c")
SIMULATOR = ("tests/core/simulator/*.c", "ext/world/order.c")
STATES = "tests/core/fuzz/states.c"
SANITIZE = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer")
Build = Callable[..., Path]


def simulator(build: Build, *flags: str, engine: Iterable[str] = (ENGINE,)) -> Path:
    """Build the program that runs random programs on virtual ranks."""
    return build("tests/core/sim.c", *SIMULATOR, *engine, flags=flags, name="sim")


def starve(build: Build, starving: tuple[str, ...]) -> Path:
    """Build the program that runs random programs in which an allocation of an engine fails."""
    flags = (*SANITIZE, *starving)
    return build("tests/core/starve.c", *SIMULATOR, ENGINE, flags=flags, name="starve")


def transcript(build: Build) -> Path:
    """Build the program that drives a few engines by hand."""
    return build("tests/core/transcript/*.c", ENGINE, flags=SANITIZE, name="transcript")


def steady(build: Build) -> Path:
    """Build the program that measures the memory for names that never occur again."""
    parts = ("tests/core/transcript/cluster.c", "tests/core/transcript/describe.c")
    return build("tests/core/steady.c", *parts, ENGINE, flags=SANITIZE, name="steady")


def fuzzer(build: Build) -> Path:
    """Build the libFuzzer harness of the wire decoder, with clang and its run-time library."""
    flags = ("-O2", "-fsanitize=fuzzer", *SANITIZE)
    sources = ("tests/core/fuzz/fuzz_wire.c", STATES, *SIMULATOR, ENGINE)
    return build(*sources, flags=flags, compiler="clang", name="fuzz_wire")


def mutator(build: Build) -> Path:
    """Build the same harness with our own inputs instead of libFuzzer's, with any compiler."""
    harness = ("tests/core/fuzz/mutate.c", "tests/core/fuzz/fuzz_wire.c", STATES)
    return build(*harness, *SIMULATOR, ENGINE, flags=SANITIZE, name="mutate")


def seeds(build: Build) -> Path:
    """Build the program that writes the fuzzer's first inputs."""
    sources = ("tests/core/fuzz/seeds.c", STATES, *SIMULATOR, ENGINE)
    return build(*sources, name="seeds")
