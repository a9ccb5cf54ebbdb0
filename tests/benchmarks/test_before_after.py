# SPDX-License-Identifier: Apache-2.0
"""Two checkouts measured in turn, at the smallest size: every pair is there. No time is judged."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def before_after(*words: object) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        ROOT / "benchmarks" / "before_after.py",
        *words,
        "--size",
        "tiny",
        "--timeout",
        "100",
    ]
    return subprocess.run(
        [str(word) for word in command], timeout=110, text=True, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_tree_against_itself(tmp_path: Path) -> None:
    done = before_after("--before", ROOT, "--launches", 2, "--pairs", 3, "--out", tmp_path, "many_tensors")
    assert done.returncode == 0, done.stdout
    facts, *cases = map(json.loads, (tmp_path / "before-after-many_tensors-2-ranks.jsonl").read_text().splitlines())
    assert facts["question"] == "many_tensors" and facts["trees"][0] == facts["trees"][1]
    assert [case["variant"] for case in cases] == ["enqueued, then awaited", "one group", "enqueued, FP16"]
    for case in cases:
        assert case["pairs"] == 6 and len(case["launches"]) == 2 and case["label"] in done.stdout
        assert min(case["before"]["low"], case["after"]["low"], case["ratio"]["low"]) > 0


@pytest.mark.timeout(120)
def test_a_tree_that_is_not_built_is_named(tmp_path: Path) -> None:
    (tmp_path / "hpccoll").mkdir()
    (tmp_path / "hpccoll" / "__init__.py").write_text("raise ImportError('not built')")
    done = before_after("--before", tmp_path, "small")
    assert done.returncode == 1 and "not built" in done.stdout


def test_the_figures_of_known_pairs() -> None:
    """Three launches of two pairs each; the second tree takes twice the time, but for one pair."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import before_after\n"
        "times = [[(1.0, 2.0), (2.0, 4.0)], [(1.0, 2.0), (1.0, 3.0)], [(0.5, 1.0), (1.0, 2.0)]]\n"
        "launches = [[before_after.Pair(*pair, 25e-9) for pair in pairs] for pairs in times]\n"
        "far = [[], [before_after.Pair(1.0, 5.0, 150e-9)]]\n"
        "(near, found), (other, farther) = before_after.by_distance(launches + far)\n"
        "assert near == '25 ns' and found == launches and other == '150 ns' and farther == far[1:]\n"
        "found = before_after.figures(found)\n"
        "assert found['ratio']['median'] == 2 and found['launches'] == [2, 2.5, 2], found\n"
        "assert found['fastest ratio'] == 2 and found['pairs'] == 6 and 0.1 < found['error'] < 0.2, found\n"
    )
    subprocess.run([sys.executable, "-c", code, ROOT / "benchmarks"], check=True, timeout=60)
