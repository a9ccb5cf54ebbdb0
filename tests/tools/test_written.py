# SPDX-License-Identifier: Apache-2.0
"""Files that a user names to a command: whatever they hold, one sentence says what is wrong, at once."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hpccoll.tools import written


@pytest.mark.parametrize(
    "words",
    [("lint",), ("study", "run"), ("submit", "--nodes=1", "--time=10", "--dry-run", "--site")],
    ids=lambda words: words[0],
)
@pytest.mark.parametrize(
    ("held", "says"),
    [
        (None, "No such file"),
        (Path("/dev/zero"), "more than 4 MiB"),
        (b"\xff\xfe", "no text in UTF-8"),
        (b"a = " + b"[" * 20_000, "nested too deeply"),
    ],
    ids=["missing", "endless", "binary", "nested"],
)
def test_one_sentence(tmp_path: Path, words: tuple[str, ...], held: Path | bytes | None, says: str) -> None:
    file = tmp_path / "a.toml"
    if isinstance(held, Path):
        file.symlink_to(held)
    elif held is not None:
        file.write_bytes(held)
    program = ("--", "python", "-c", "1") if words[0] == "submit" else ()
    done = subprocess.run(
        [sys.executable, "-P", "-m", "hpccoll", *words, file, *program], capture_output=True, text=True, timeout=60
    )
    if words[0] == "lint" and says == "nested too deeply":
        assert done.returncode in (0, 1), "brackets of a script are not its business"
        return
    assert done.returncode in (1, 2) and done.stderr.count("\n") == 1, done.stderr
    assert str(file) in done.stderr and says in done.stderr


def test_a_closed_standard_input_is_a_sentence() -> None:
    command = [sys.executable, "-P", "-m", "hpccoll", "lint", "-"]
    done = subprocess.run(["sh", "-c", 'exec "$@" <&-', "sh", *command], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (2, "hpccoll lint: -: the standard input is closed\n")


@pytest.mark.parametrize("words", [("--version",), ("info", "--json"), ("submit", "--sites")])
def test_an_output_that_takes_nothing_is_a_sentence(words: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-P", "-m", "hpccoll", *words]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (1, "hpccoll: standard output: No space left on device\n")


@pytest.mark.parametrize("words", [("--version",), ("info",), ("doctor", "--no-measuring")])
@pytest.mark.parametrize("closed", [">&-", ">&- 2>&-", "<&- >&-"])
def test_a_closed_output_is_no_failure(words: tuple[str, ...], closed: str) -> None:
    command = [sys.executable, "-P", "-m", "hpccoll", *words]
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}', "sh", *command], capture_output=True, text=True, timeout=90
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_file_of_the_largest_size_is_read(tmp_path: Path) -> None:
    file = tmp_path / "large"
    file.write_bytes(b"#" * written.LARGEST)
    assert len(written.read(file)) == written.LARGEST


NOT_UTF8 = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
"""A locale without the signs of other languages, as en_US without .UTF-8 is one (Latin-1)."""
SITE = """
name = "mine"
title = "ours"
scheduler = "slurm"
launcher = "srun"
notes = ["für → alle"]
[node]
sockets = 2
numa = 2
cores = 64
"""


@pytest.mark.parametrize("locale", [NOT_UTF8, {"PYTHONUTF8": "1"}], ids=["ascii", "utf-8"])
def test_signs_that_the_locale_does_not_have(tmp_path: Path, locale: dict[str, str]) -> None:
    """The name of a program goes into the script as it was given, byte by byte; a note so that it can be read."""
    site, program = tmp_path / "site.toml", b"caf\xe9.py"
    site.write_text(SITE, "utf-8")
    command = [sys.executable, "-P", "-m", "hpccoll", "submit", "--site", site, "--nodes=1", "--dry-run", program]
    done = subprocess.run(command, capture_output=True, env=os.environ | locale, timeout=60)
    assert done.returncode == 0 and program in done.stdout, done.stderr.decode(errors="replace")
    note = b"f\\xfcr \\u2192 alle" if locale is NOT_UTF8 else "für → alle".encode()
    assert note in done.stdout


def test_files_are_in_utf_8_under_every_locale(tmp_path: Path) -> None:
    """As the page of a study, which says so in its head."""
    program = (
        "import sys, pathlib; from hpccoll import durable; durable.write_text(pathlib.Path(sys.argv[1]), '\\u201c')"
    )
    command = [sys.executable, "-P", "-c", program, tmp_path / "page.html"]
    done = subprocess.run(command, capture_output=True, env=os.environ | NOT_UTF8, timeout=60)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "page.html").read_bytes() == b"\xe2\x80\x9c"
