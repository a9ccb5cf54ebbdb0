# SPDX-License-Identifier: Apache-2.0
"""The C programs of this room: what they are made of and how they are built."""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# One way to compile, for pytest and for soak.py: the function of tests/conftest.py.
_spec = spec_from_file_location("hpccoll_tests_conftest", ROOT / "tests/conftest.py")
assert _spec and _spec.loader
_conftest = module_from_spec(_spec)
_spec.loader.exec_module(_conftest)
compile_c = _conftest.compile_c

ENGINE = "ext/core/*.c"
SIMULATOR = [f"tests/core/simulator/{f}.c" for f in ("arena", "program", "oracle", "machine", "ranks", "batches", "judge", "stalls", "trace")]
SANITIZE = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer")


def simulator(*flags: str, engine: str = ENGINE, compiler: str = "gcc") -> Path:
    """The program that runs random programs on virtual ranks."""
    return compile_c("tests/core/simulator/main.c", *SIMULATOR, engine, flags=("-O2", *flags), compiler=compiler, name="sim")


def transcript() -> Path:
    """The program that drives a few engines by hand."""
    return compile_c("tests/core/transcript/*.c", ENGINE, flags=SANITIZE, name="transcript")


def fuzzer() -> Path:
    """The libFuzzer harness of the wire decoder. Needs clang and its run-time library."""
    flags = ("-O2", "-Itests/core/simulator", "-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=undefined")
    return compile_c("tests/core/fuzz/fuzz_wire.c", "tests/core/fuzz/states.c", *SIMULATOR, ENGINE, flags=flags, compiler="clang", name="fuzz_wire")


def seeds() -> Path:
    """Writes the fuzzer's first inputs."""
    return compile_c("tests/core/fuzz/seeds.c", "tests/core/fuzz/states.c", *SIMULATOR, ENGINE, flags=("-Itests/core/simulator",), name="seeds")
