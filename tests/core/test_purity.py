# SPDX-License-Identifier: Apache-2.0
"""The engine is pure: it needs memory and nothing else, and keeps no state of its own."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "ext/core").glob("*.c"))
HEADERS = sorted((ROOT / "ext/core").glob("*.h"))
LIBC = {"malloc", "calloc", "realloc", "free", "memcpy", "memmove", "memset", "memcmp", "strlen"}
LIBC_HEADERS = {"stdatomic.h", "stddef.h", "stdint.h", "stdlib.h", "string.h"}


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Every file of the engine compiled as in the product."""
    folder = tmp_path_factory.mktemp("core")
    made = []
    for source in SOURCES:
        made.append(folder / f"{source.stem}.o")
        subprocess.run(
            ["gcc", "-std=c11", "-O2", "-fno-builtin-printf", "-Iext", "-c", source, "-o", made[-1]],
            check=True,
            timeout=60,
            cwd=ROOT,
        )
    return made


def listing(*command: str | Path) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def symbols(objects: list[Path]) -> Iterator[tuple[str, str]]:
    for path in objects:
        for line in listing("nm", path).splitlines():
            *_, kind, name = line.split()
            yield kind, name


def test_needs_memory_and_nothing_else(objects: list[Path]) -> None:
    defined = {name for kind, name in symbols(objects) if kind in "TtRr"}
    wanted = {name for kind, name in symbols(objects) if kind in "Uw"}
    assert wanted - defined - {"_GLOBAL_OFFSET_TABLE_"} <= LIBC


def test_keeps_no_state(objects: list[Path]) -> None:
    """No variable that could be written: neither .data nor .bss nor common nor thread-local."""
    assert [(kind, name) for kind, name in symbols(objects) if kind in "DdBbCGgSs"] == []
    written = re.compile(r"^\.(?:data|bss|tdata|tbss)(?!\.rel\.ro)\S*\s+([1-9]\d*)", re.MULTILINE)
    assert [path.name for path in objects if written.search(listing("size", "-A", path))] == []


def test_exports_only_its_own_names(objects: list[Path]) -> None:
    assert [name for kind, name in symbols(objects) if kind == "T" and not name.startswith("hc_")] == []


@pytest.mark.parametrize("path", SOURCES + HEADERS, ids=lambda p: p.name)
def test_includes(path: Path) -> None:
    """Only five headers of libc, and headers of this layer."""
    text = path.read_text()
    assert set(re.findall(r"#\s*include\s*<([^>]+)>", text)) <= LIBC_HEADERS
    assert set(re.findall(r'#\s*include\s*"([^"]+)"', text)) <= {f"core/{header.name}" for header in HEADERS}


def test_the_readme_lists_the_files_in_order(objects: list[Path]) -> None:
    """Each file once, and behind every file that it uses."""
    rows = re.findall(r"^\| (`.*?) \|", (ROOT / "ext/core/README.md").read_text(), re.MULTILINE)
    listed = [Path(name).stem for row in rows for name in re.findall(r"`([\w.]+)`", row) if name != "hc.h"]
    assert sorted(listed) == [source.stem for source in SOURCES]
    defined = {name: path.stem for path in objects for kind, name in symbols([path]) if kind in "TtRr"}
    for path in objects:
        used = {defined[name] for kind, name in symbols([path]) if kind == "U" and name in defined}
        late = {file for file in used if listed.index(file) >= listed.index(path.stem)}
        assert not late, f"{path.stem} uses {late}"
