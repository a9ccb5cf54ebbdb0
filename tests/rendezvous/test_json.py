# SPDX-License-Identifier: Apache-2.0
"""The messages of an elastic job's launcher, as a rank in C reads them: what json.dumps() writes, and cut texts."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

MESSAGES: list[dict[str, Any]] = [
    {"generation": 3, "rank": 0, "size": 12},
    {"of": 1, "gathered": 0, "values": ["0.1.0 00ff", "", 'a "quoted" \\ one', "0.1.0 01"]},
    {"void": 2, "why": 'rank 1 was lost:\n\t"killed" by a \\ \u00e9 \u20ac \U0001f600 \x01'},
    {"values": [{"a": [1, {"why": "inner"}], "b": None}, [], {}], "why": "outer", "rank": -1, "size": 1.5, "of": True},
    {},
]
KEYS = ("generation", "rank", "size", "of", "values", "why")


@pytest.fixture(scope="module")
def read(build_c: Callable[..., Path]) -> Callable[[list[str]], list[str]]:
    program = build_c("tests/rendezvous/json.c", "ext/rendezvous/json.c")

    def run(lines: list[str]) -> list[str]:
        text = "".join(f"{line}\n" for line in lines)
        done = subprocess.run([program, *KEYS], input=text, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return run


def string(value: Any) -> str:
    """A string in quotes, as the program writes it: each byte of UTF-8 that is no ASCII is a '?'."""
    if not isinstance(value, str):
        return "none"
    plain = value.encode().decode("ascii", "replace").replace("\ufffd", "?")
    return json.dumps(plain).replace("\\n", "\\u000a").replace("\\t", "\\u0009")


def expected(message: dict[str, Any]) -> str:
    words = []
    for key in KEYS:
        value = message.get(key)
        words.append(str(value) if type(value) is int and value >= 0 else "-1")
        words += [string(value), *map(string, value if isinstance(value, list) else [])]
    return "".join(f" {word}" for word in words)


@pytest.mark.parametrize("separators", [None, (",", ":"), (" , ", "\t:  ")])
def test_values_are_those_of_pythons_json(read: Callable[[list[str]], list[str]], separators: Any) -> None:
    lines = [json.dumps(message, separators=separators) for message in MESSAGES]
    assert read(lines) == [expected(message) for message in MESSAGES]


def test_what_is_no_json_has_no_value(read: Callable[[list[str]], list[str]]) -> None:
    """No byte behind the end of the text is read, which the sanitizers would notice."""
    lines = [json.dumps(message)[:cut] for message in MESSAGES for cut in range(150)]
    lines += [
        '{"why": "\\u12"}',
        '{"why": "\\x"}',
        '{"why": "\\',
        '{"why"',
        '{"why":]}',
        "[]",
        "{{{{",
        '{"why": "\\ud83d\\u"}',
    ]
    nothing = expected({})
    assert read(lines)[-8:] == [nothing] * 8
