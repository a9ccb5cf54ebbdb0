# SPDX-License-Identifier: Apache-2.0
"""Choices from simulated measurements: a real gain is found, noise and trade-offs leave the defaults alone."""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hpccoll
from hpccoll import config, inherited
from hpccoll.__main__ import main
from hpccoll.tools.bench.results import Case, Key, Results
from hpccoll.tools.tune import cli

KNOBS = ["fusion_threshold", "raise_window", "chunk_bytes"]


class Machine:
    """Answers measurements: the time of an arm is the product of its knobs' factors, with 5 % of noise."""

    def __init__(self, factors: Mapping[tuple[str, Any], Sequence[float]], spoiled: float = 1.0) -> None:
        self.factors, self.spoiled = factors, spoiled
        self.random = np.random.default_rng(7)

    def __call__(self, words: Sequence[str], arms: Mapping[str, Mapping[str, Any]]) -> Results:
        results = Results([{}] * 5)
        for arm, knobs in {"": {}, **arms}.items():
            for i, size in enumerate((1 << 16, 1 << 24)):
                time = np.prod([self.factors.get(knob, (1.0, 1.0))[i] for knob in knobs.items()])
                time *= self.spoiled if len(knobs) > 1 else 1.0
                key = Key("collective", words[0], "hpccoll", arm, "float32", "host", "", 4, 2, size)
                samples = 1e-3 * time * self.random.lognormal(0, 0.05, 100)
                launch = np.repeat(np.arange(5, dtype=np.int32), 20)
                results.cases[key] = Case(key, samples, launch, np.ones(100, np.int32))
        return results


def tuned(machine: Machine) -> tuple[dict[str, Any], list[str]]:
    said: list[str] = []
    text = cli.tuned(KNOBS, machine, said.append)
    return (tomllib.loads(text)["knobs"] if text else {}), said


def test_gains_are_found_and_told() -> None:
    chosen, said = tuned(Machine({("fusion_threshold", 64 << 20): (0.8, 0.9), ("chunk_bytes", 1 << 18): (1.0, 0.7)}))
    assert chosen == {"fusion_threshold": 64 << 20, "chunk_bytes": 1 << 18}
    (line,) = [line for line in said if line.startswith(f"chunk_bytes={1 << 18}")]
    assert "(chosen)" in line
    assert float(line.partition("allreduce 16777216 ")[2].split()[0]) == pytest.approx(0.7, rel=0.03)


def test_noise_changes_nothing() -> None:
    assert tuned(Machine({}))[0] == {}


def test_what_is_slower_in_one_case_is_not_written() -> None:
    assert tuned(Machine({("chunk_bytes", 1 << 16): (0.5, 1.3)}))[0] == {}


def test_choices_that_spoil_each_other_are_dropped_until_the_rest_gains() -> None:
    gains = {("fusion_threshold", 64 << 20): (0.9, 0.9), ("chunk_bytes", 1 << 20): (0.7, 0.7)}
    chosen, said = tuned(Machine(gains, spoiled=2.0))
    assert chosen == {"chunk_bytes": 1 << 20}
    assert any(line.startswith("fusion_threshold: left at its default") for line in said)


def test_few_launches_are_no_ground_for_a_choice(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", "--launches", "4", "--out", "site.toml"]) == 2
    assert "--launches 4: a choice needs intervals, which 5 launches have" in capsys.readouterr().err


@pytest.mark.parametrize(("variable", "value"), [("HPCCOLL_CHUNK_BYTES", "64K"), ("HPCCOLL_SITE_FILE", "{}/site.toml")])
def test_other_values_than_the_defaults_are_refused(
    variable: str, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They were measured as the defaults: a second tuning saw no gain, or wrote a file without the first one's."""
    (tmp_path / "site.toml").write_text("[knobs]\nchunk_bytes = 65536\n")
    monkeypatch.setattr(inherited, "environment", lambda: {variable: value.format(tmp_path)})
    assert main(["tune", "--knobs", "chunk_bytes", "--out", str(tmp_path / "site.toml")]) == 2
    said = capsys.readouterr().err
    assert said.startswith("hpccoll tune: chunk_bytes is 65536 here and not the default, ") and variable in said


def test_knobs_without_an_effect_on_one_node_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    """Before, nothing was measured, and the defaults were said to be the best."""
    assert main(["tune", "--knobs", "algorithm,rails", "--out", "site.toml"]) == 2
    said = capsys.readouterr()
    assert said.err == "algorithm, rails: not measured, as they have an effect on several nodes only: --nodes N\n"
    assert not said.out


def test_what_would_be_lost_is_not_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", "--out", str(tmp_path)]) == 2
    assert f"{tmp_path} cannot be written: [Errno 21] Is a directory" in capsys.readouterr().err
    assert main(["tune", "--out", str(tmp_path / "no" / "site.toml")]) == 2
    assert f"No such file or directory: '{tmp_path}/no'" in capsys.readouterr().err
    assert main(["tune", "--out", str(tmp_path / "site.toml"), "--model", "nothing"]) == 1
    assert "--model nothing: there are bert-large, " in capsys.readouterr().err


def test_jobs_read_a_site_file(tmp_path: Path) -> None:
    file = tmp_path / "site.toml"
    file.write_text("# measured\n[knobs]\nchunk_bytes = 65536\nraise_window = 0.001\n")
    env = {"HPCCOLL_SITE_FILE": str(file)}
    assert config.read(env).chunk_bytes == 65536
    assert config.read(env | {"HPCCOLL_CHUNK_BYTES": "1M"}).chunk_bytes == 1 << 20
    assert config.read(env, raise_window=0.5).raise_window == 0.5
    assert config.read({}, site_file=str(file)).raise_window == 0.001


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[knobs]\nchunk_byte = 1", "chunk_byte is no knob of hpccoll: did you mean chunk_bytes?"),
        ("[knobs]\nfanout = 0", "HPCCOLL_FANOUT (fanout) is 0, not 1 to 1024"),
        ("fanout = 2", "it has no table [knobs]"),
        ("knobs = 3", "knobs is 3, not a table"),
        ('knobs = "fanout"', "knobs is 'fanout', not a table"),
        ('knobs = [["fanout", 2]]', "not a table"),
        ("[knobs", "cannot be used"),
    ],
)
def test_a_wrong_site_file_is_named(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "site.toml"
    file.write_text(text)
    with pytest.raises(hpccoll.InvalidArgumentError) as caught:
        config.read({"HPCCOLL_SITE_FILE": str(file)})
    assert why in str(caught.value)
    assert str(file) in str(caught.value)
    with pytest.raises(hpccoll.InvalidArgumentError, match="No such file"):
        config.read({"HPCCOLL_SITE_FILE": f"{file}.none"})
