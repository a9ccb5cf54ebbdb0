# SPDX-License-Identifier: Apache-2.0
"""Ranks, names and sizes as messages write them."""

import errno
import io
import os
import sys
from pathlib import Path
from typing import Any

import pytest

import hpccoll
from hpccoll.text import byte_size, capitalized, listed, parse_ranges, ranges, say, some_ranks


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ([3], "rank 3"),
        ([1, 0], "ranks 0, 1"),
        ([2, 0, 2], "ranks 0, 2"),
        (range(4), "ranks 0-3"),
        ([8, 0, 1, 2], "ranks 0-2, 8"),
        ([4, 5, 0, 1], "ranks 0, 1, 4, 5"),
        (range(1024), "ranks 0-1023"),
        (range(0, 40, 2), "ranks 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30 and 4 more"),
        (
            [*range(0, 40, 2), *range(100, 200)],
            "ranks " + ", ".join(map(str, range(0, 32, 2))) + " and 104 more",
        ),
    ],
)
def test_ranks_in_a_sentence(ranks: list[int], text: str) -> None:
    assert some_ranks(ranks) == text


def test_ranges_of_numbers() -> None:
    assert ranges([3, 1, 2, 7]) == "1-3,7"
    assert parse_ranges("0-2,5\n") == [0, 1, 2, 5]
    assert parse_ranges(ranges([])) == []


def test_lists_count_what_they_leave_out() -> None:
    assert listed(["h1", "h2", "h1"]) == "h1, h2"
    assert listed((f"h{i}" for i in range(5)), 2) == "h0, h1 and 3 more"


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (1 << 30, "1 GiB"), (1 << 42, "4 TiB")],
)
def test_sizes(count: int, text: str) -> None:
    assert byte_size(count) == text


def test_a_sentence_keeps_its_capitals() -> None:
    assert capitalized("load MPI") == "Load MPI"
    assert capitalized("") == ""


class Full(io.StringIO):
    """A file on a full disk."""

    def write(self, text: str, /) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


CLOSED = io.StringIO()
CLOSED.close()


@pytest.mark.parametrize("stderr", [None, CLOSED, Full()])
def test_a_line_that_cannot_be_printed_is_no_error(
    stderr: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stderr", stderr)
    say("a line")
    monkeypatch.undo()
    assert capsys.readouterr().out == ""


def test_nothing_else_prints_lines_of_the_library() -> None:
    """print() would end a job whose stderr is a file on a full disk. Commands may print."""
    root = Path(hpccoll.__file__).parent
    commands = (root / "tools", root / "tensorflow" / "data" / "compute_worker.py", root / "__main__.py")
    sources = [file for file in root.rglob("*.py") if not any(file.is_relative_to(command) for command in commands)]
    assert [file for file in sources if "file=sys.stderr" in file.read_text()] == [root / "text.py"]
