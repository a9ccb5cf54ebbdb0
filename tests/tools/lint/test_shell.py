# SPDX-License-Identifier: Apache-2.0
"""Words, lines and expansions of shell scripts, compared with what bash itself makes of them."""

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpccoll.tools.lint.shell import expand, inner, read

SCRIPT = r"""#!/bin/bash
# a comment; srun ignored
export A=1 B="two words"   # behind a command
if [ -f x ]; then
  srun -n 4 \
      python 'train it.py' --name="$B" > log 2>&1 &
fi
cat <<END | sort
srun in a document
END
n=$(cat "$HOSTS" | wc -l); echo "${n} $((A * 6))" && wait
for i in 1 2; do jsrun -n${n} ./a.out; done
"""


@pytest.mark.parametrize(
    ("outer", "words", "line"),
    [
        ('bash -lc "srun -n 2 a.out"', [("srun", "-n", "2", "a.out")], 1),
        ("/bin/sh -c '\ncd there\nsrun a.out'", [("cd", "there"), ("srun", "a.out")], 2),
        ("x=$(srun a.out | tail -1)", [("srun", "a.out"), ("tail", "-1")], 1),
        ("$(srun a.out)", [("srun", "a.out")], 1),
        ("x=$((2 * 3))", [], 1),
        ("bash job.sh -c", [], 1),
    ],
)
def test_commands_inside_a_command(outer: str, words: list[tuple[str, ...]], line: int) -> None:
    found = [one for command in read(outer) for one in inner(command)]
    assert [one.words for one in found] == words
    assert not found or found[0].line == line


def test_words_and_lines() -> None:
    found = [(command.line, command.words, command.end) for command in read(SCRIPT)]
    assert found == [
        (3, ("export", "A=1", "B=two words"), "\n"),
        (4, ("[", "-f", "x", "]"), ";"),
        (5, ("srun", "-n", "4", "python", "train it.py", "--name=$B"), "&"),
        (8, ("cat",), "|"),
        (8, ("sort",), "\n"),
        (11, ('n=$(cat "$HOSTS" | wc -l)',), ";"),
        (11, ("echo", "${n} $((A * 6))"), "&&"),
        (11, ("wait",), "\n"),
        (12, ("i", "in", "1", "2"), ";"),
        (12, ("jsrun", "-n${n}", "./a.out"), ";"),
    ]


@pytest.mark.parametrize(
    "before",
    [
        "(( m = n << 2 ))", "for ((i = 1 << 2; i < 9; i++)); do :; done", "((true); true)", "x=$((1 << 2))",
        "x=$(echo 'c(d' \"a)b\")", "x=$(echo \"$(echo ')')\")", "x=\"$(echo 'a\"b')\"", "x=\"${y:-'}'}\"",
        "x=${y:-'}'}", "x=$(echo a # don't\n)", "x=$'a\\'b'", "x=$(echo \\()", "x=(a 'b)' \"c\"\n # don't\n)",
        "x+=(d)",
    ],
)  # fmt: skip
def test_what_stands_after_it_is_read_as_bash_reads_it(before: str) -> None:
    script = before + '\nprintf "%s " last command\n'
    said = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=10, check=True).stdout
    assert said == "last command "
    found = read(script)[-1]
    assert (found.words, found.line) == (("printf", "%s ", "last", "command"), script.count("\n"))


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("$N", "4"),
        ("${N}x", "4x"),
        ("${M:-7}", "7"),
        ("${N:-7}", "4"),
        ("$((N * 6 + 1))", "25"),
        ("$(( $N / 3 ))", "1"),
        ("$((N * unknown))", "$((N * unknown))"),
        ("$unknown", "$unknown"),
    ],
)
def test_expansion(word: str, value: str) -> None:
    assert expand(word, {"N": "4"}) == value


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(st.sampled_from("ab '\"\\#&;|<>()=-$\n"), max_size=6), min_size=1, max_size=4))
def test_quoted_words_are_those_of_bash(words: list[str]) -> None:
    """Any text, quoted by bash's own printf %q, is read as bash reads it."""
    quoted = subprocess.run(
        ["bash", "-c", 'printf "%q " "$@"', "-", *words],
        capture_output=True,
        text=True,
        timeout=10,
        check=True,
    ).stdout
    if "$'" in quoted:  # newlines become $'\n', which job scripts do not use
        return
    (command,) = read(f"program {quoted}\n")
    assert list(command.words[1:]) == words


@settings(max_examples=300, deadline=None)
@given(st.text(st.sampled_from("ab '\"\\#&;|<>(){}=-$`\n"), max_size=30))
def test_nothing_stops_the_reader(text: str) -> None:
    """Reading ends for any wrong script, and no command has a line number beyond its end."""
    assert all(1 <= command.line <= text.count("\n") + 1 for command in read(text))
