# SPDX-License-Identifier: Apache-2.0
"""libhpccoll.so as a library: what it exports and needs, and that its tables are those of the Python part."""

import ctypes
import re
import subprocess
from importlib import metadata
from pathlib import Path

import pytest

from hpccoll import _core, config

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = ROOT / "hpccoll" / "lib" / "libhpccoll.so.1"
HEADER = (ROOT / "ext" / "api" / "hpccoll.h").read_text()


@pytest.fixture(scope="module")
def library() -> ctypes.CDLL:
    loaded = ctypes.CDLL(str(LIBRARY))
    for name in ("hpccoll_version", "hpccoll_strerror", "hpccoll_last_error", "hpccoll_stat_name"):
        getattr(loaded, name).restype = ctypes.c_char_p
    return loaded


def symbols(*options: str) -> list[str]:
    listing = subprocess.run(["nm", "-D", *options, LIBRARY], capture_output=True, text=True, check=True, timeout=60)
    return [line.split()[-1] for line in listing.stdout.splitlines()]


def test_it_exports_what_the_header_declares_and_nothing_else() -> None:
    declared = set(re.findall(r"^HPCCOLL_API [^(]*?\*?(hpccoll_\w+)\(", HEADER, re.MULTILINE))
    exported = [name for name in symbols("--defined-only") if name != "HPCCOLL_1.0"]
    assert len(declared) > 40
    assert set(exported) == {f"{name}@@HPCCOLL_1.0" for name in declared}


def test_it_needs_neither_python_nor_one_mpi() -> None:
    assert not [name for name in symbols("--undefined-only") if re.match(r"_?Py|P?MPI_|ompi_", name)]


def test_versions_are_one(library: ctypes.CDLL) -> None:
    version = metadata.version("hpccoll")
    assert library.hpccoll_version().decode() == version
    assert f'#define HPCCOLL_VERSION "{version}"' in HEADER
    assert f"Version: {version}" in (ROOT / "bindings" / "package" / "hpccoll.pc").read_text()
    assert f'"{version}"' in (ROOT / "bindings" / "package" / "hpccollConfigVersion.cmake").read_text()


def numbers(enum: str) -> dict[str, int]:
    """The names of an enum of the header, and their numbers."""
    body = re.search(rf"typedef enum {enum} \{{(.*?)\}}", HEADER, re.DOTALL)
    assert body
    found: dict[str, int] = {}
    for name, number in re.findall(r"HPCCOLL_(\w+)(?: = (-?\d+))?", body[1]):
        found[name] = int(number) if number else max(found.values(), default=-1) + 1
    return found


def test_the_numbers_are_those_of_the_engine() -> None:
    """The build compares them with ext/core/hc.h; this compares the names in words."""
    dtypes, reductions = numbers("hpccoll_dtype"), numbers("hpccoll_reduction")
    assert dtypes.pop("NO_COMPRESSION") == reductions.pop("OP_NULL") == -1  # stay so when the tables grow
    assert [name.lower() for name in dtypes][:-1] == list(_core.DTYPES)
    assert [name.lower() for name in numbers("hpccoll_operation")][:-1] == list(_core.OPERATIONS)
    assert list(reductions)[: list(reductions).index("REDUCTIONS")] == list(_core.REDUCTIONS)
    assert numbers("hpccoll_status") == {name: code for code, name, *_ in _core.STATUSES}


def test_statuses_have_words(library: ctypes.CDLL) -> None:
    for code, _, text, _ in _core.STATUSES:
        assert library.hpccoll_strerror(code).decode() == text


def alone(library: ctypes.CDLL, options: str) -> str:
    """Make a World of this process with options, and end it: the error, or ""."""
    world = ctypes.c_void_p()
    status = library.hpccoll_world_alone(options.encode(), ctypes.byref(world))
    text = library.hpccoll_last_error().decode() if status else ""
    assert library.hpccoll_world_free(ctypes.byref(world)) == 0
    return text


def test_knobs_are_those_of_python(library: ctypes.CDLL) -> None:
    """Each knob that Python has is one here, with its bounds, or is known to belong to Python."""
    source = (ROOT / "ext" / "api" / "settings.c").read_text()
    listed = re.search(r"of_python\[\] = \{(.*?)NULL\}", source, re.DOTALL)
    assert listed
    of_python = set(re.findall(r'"(\w+)"', listed[1])) - {"secret"}
    for knob in config.knobs():
        if knob.name in of_python:
            assert "no knob" in alone(library, f"{knob.name}=1")
        elif knob.default != '""':
            assert alone(library, f"verbose=0 {knob.name}={knob.default}") == ""
    assert of_python < {knob.name for knob in config.knobs()}


def test_variables_of_python_are_named(
    library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """They have no effect, which rank 0 says once; the launcher sets the secret, and not the user."""
    for name in ("TIMELINE", "AUTOTUNE", "SECRET"):
        monkeypatch.setenv(f"HPCCOLL_{name}", "1")
    assert alone(library, "") == ""
    (line,) = [line for line in capfd.readouterr().err.splitlines() if "without effect" in line]
    _, _, named = line.partition("in a program without Python: ")
    assert {"HPCCOLL_TIMELINE", "HPCCOLL_AUTOTUNE"} <= set(named.split(", ")) and "SECRET" not in named
    assert alone(library, "verbose=0") == "" and "without effect" not in capfd.readouterr().err


def test_defaults_are_those_of_python() -> None:
    defaults = {field.name: field.default for field in config.dataclasses.fields(config.Config)}
    rows = re.findall(r"X\(uint\d+_t, (\w+), ([\d.]+),", (ROOT / "ext" / "api" / "settings.h").read_text())
    texts = re.findall(r'X\((\w+), "(\w*)",', (ROOT / "ext" / "api" / "settings.h").read_text())
    assert len(rows) >= 5
    assert len(texts) >= 6
    assert {name: float(value) for name, value in rows} == {name: float(defaults[name]) for name, _ in rows}
    assert dict(texts) == {name: defaults[name] for name, _ in texts}


@pytest.mark.parametrize(
    ("options", "words"),
    [("stall_limit=soon", "stall_limit=soon is not 0 to"), ("rails", "is not name=value"), ("simd=vax", "avx512"),
     ("nodes=2", "HPCCOLL_NODES=2: the machine of rank 0 has only 1 rank")],
)  # fmt: skip
def test_wrong_options_are_refused(library: ctypes.CDLL, options: str, words: str) -> None:
    assert words in alone(library, options)


def test_counters_are_those_of_python(library: ctypes.CDLL) -> None:
    names = []
    while name := library.hpccoll_stat_name(len(names)):
        names.append(name.decode())
    import hpccoll

    with hpccoll.World(rendezvous=hpccoll.rendezvous.SingleProcess(), verbose=0) as world:
        assert sorted(names) == sorted(world.stats())
