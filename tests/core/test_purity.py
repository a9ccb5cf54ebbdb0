# SPDX-License-Identifier: Apache-2.0
"""The engine is pure: it needs memory and nothing else, and keeps no state of its own."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "ext/core").glob("*.c"))
HEADERS = sorted((ROOT / "ext/core").glob("*.h"))
LIBC = {"malloc", "calloc", "realloc", "free", "memcpy", "memmove", "memset", "memcmp", "strlen"}
Symbols = list[tuple[str, str, str]]
LIBC_HEADERS = {"stdatomic.h", "stddef.h", "stdint.h", "stdlib.h", "string.h"}


@pytest.fixture(scope="module")
def objects(objects_of: Callable[..., dict[str, Path]]) -> dict[str, Path]:
    """By its name, every file of the engine as the tests' programs have it, but for sanitizers."""
    made = objects_of("ext/core/*.c", plain=True)
    return {source.stem: made[f"ext/core/{source.name}"] for source in SOURCES}


@pytest.fixture(scope="module")
def symbols(objects: dict[str, Path]) -> Symbols:
    """File, kind and name of each symbol."""
    lines = ((stem, line.split()) for stem, path in objects.items() for line in listing("nm", path).splitlines())
    return [(stem, words[-2], words[-1]) for stem, words in lines]


def listing(*command: str | Path) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def test_needs_memory_and_nothing_else(symbols: Symbols) -> None:
    defined = {name for _, kind, name in symbols if kind in "TtRr"}
    wanted = {name for _, kind, name in symbols if kind in "Uw"}
    assert wanted - defined - {"_GLOBAL_OFFSET_TABLE_"} <= LIBC


def test_keeps_no_state(objects: dict[str, Path], symbols: Symbols) -> None:
    """No variable that could be written: neither .data nor .bss nor common nor thread-local; but a process has one
    reserve of memory, which decides nothing."""
    objects = {stem: path for stem, path in objects.items() if stem != "reserve"}
    assert [(kind, name) for stem, kind, name in symbols if kind in "DdBbCGgSs" and stem in objects] == []
    written = re.compile(r"^\.(?:data|bss|tdata|tbss)(?!\.rel\.ro)\S*\s+([1-9]\d*)", re.MULTILINE)
    assert [stem for stem, path in objects.items() if written.search(listing("size", "-A", path))] == []


def test_exports_only_its_own_names(symbols: Symbols) -> None:
    assert [name for _, kind, name in symbols if kind == "T" and not name.startswith("hc_")] == []


@pytest.mark.parametrize("path", SOURCES + HEADERS, ids=lambda p: p.name)
def test_includes(path: Path) -> None:
    """Only five headers of libc, and headers of this layer."""
    text = path.read_text()
    assert set(re.findall(r"#\s*include\s*<([^>]+)>", text)) <= LIBC_HEADERS
    assert set(re.findall(r'#\s*include\s*"([^"]+)"', text)) <= {f"core/{header.name}" for header in HEADERS}


def test_the_readme_lists_the_files_in_order(symbols: Symbols) -> None:
    """Each file once, and behind every file that it uses."""
    rows = re.findall(r"^\| (`.*?) \|", (ROOT / "ext/core/README.md").read_text(), re.MULTILINE)
    listed = [Path(name).stem for row in rows for name in re.findall(r"`([\w.]+)`", row) if name != "hc.h"]
    assert sorted(listed) == [source.stem for source in SOURCES]
    defined = {name: stem for stem, kind, name in symbols if kind in "TtRr"}
    for stem in listed:
        used = {defined[name] for user, kind, name in symbols if (user, kind) == (stem, "U") and name in defined}
        late = {file for file in used if listed.index(file) >= listed.index(stem)}
        assert not late, f"{stem} uses {late}"
