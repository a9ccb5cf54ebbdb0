# SPDX-License-Identifier: Apache-2.0
"""The language model: its batches and its size, and its training by every way beside one process."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
FOLDER = Path(__file__).resolve().parents[2] / "examples" / "gpt"
PROGRAM = "examples/gpt/train.py"
SHORT = ("--steps", 12, "--batch", 12)
MODULES = ("network", "text")
EXACT = ("--wire", "fp32", "--compute", "fp32")


@pytest.fixture(scope="module")
def parts(modules: Any) -> Any:
    return modules


def test_a_batch_is_the_same_for_any_number_of_ranks(parts: Any, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(range(256)) * 20)
    parts.text.write_tokens(tmp_path / "tokens.h5", [tmp_path / "a"])
    assert parts.text.files_of(tmp_path / "tokens.h5") == [tmp_path / "a"] and not parts.text.files_of(tmp_path / "b")
    tokens = parts.text.Tokens(tmp_path / "tokens.h5", 16)
    assert (len(tokens.training), len(tokens.validation)) == (4608, 512)
    whole = tokens.batch([0, 7], 12, slice(0, 12))
    assert whole.shape == (12, 17) and (np.diff(whole.numpy()) % 256 == 1).all()  # windows of the text
    for ranks in (2, 3):
        pieces = [tokens.batch([0, 7], 12, slice(r * 12 // ranks, (r + 1) * 12 // ranks)) for r in range(ranks)]
        assert torch.equal(torch.cat(pieces), whole)
    assert not torch.equal(tokens.batch([0, 8], 12, slice(0, 12)), whole)


def test_gpt2_has_its_124_million_weights(parts: Any) -> None:
    """124,439,808, as published: the embedding of words is also the last layer."""
    with torch.device("meta"):
        network = parts.network.Gpt(parts.network.SIZES["gpt2"])
    assert sum(weight.numel() for weight in network.parameters()) == 124_439_808


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("way", "ranks", "nodes", "options"),
    [
        ("optimizer", 2, 1, EXACT),
        ("optimizer", 3, 2, ("--passes", 1, "--recompute")),
        ("ddp", 2, 2, EXACT),
        ("ddp", 2, 1, ()),
        ("fsdp", 3, 2, EXACT),
        ("fsdp", 2, 1, ("--recompute",)),
        ("ddp-gloo", 2, 1, EXACT),
    ],
)
def test_losses_are_those_of_one_process(
    job: Callable[..., str], tmp_path: Path, way: str, ranks: int, nodes: int, options: tuple[object, ...]
) -> None:
    output = job(
        ranks, PROGRAM, *SHORT, "--folder", tmp_path, "--way", way, "--verify", *options, HPCCOLL_NODES=nodes
    )  # the program compares, and fails
    assert f"ranks {ranks}, {way}, 120,576 weights: 12 of 12 steps" in output
    first, last = map(float, re.search(r"loss ([\d.]+) -> ([\d.]+) nats per token, validation", output).groups())
    assert first == pytest.approx(np.log(256), abs=0.1) and last < first - 0.5  # it knows nothing, then something
    assert "tokens per second" in output and (tmp_path / f"losses-{way}.png").stat().st_size > 5000


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("way", "later"), [("optimizer", 3), ("ddp", 2), ("fsdp", 3)])
def test_a_training_in_two_parts_is_the_whole_one(
    job: Callable[..., str], tmp_path: Path, way: str, later: int
) -> None:
    """Also where the second part has another number of ranks."""
    options = (PROGRAM, *SHORT, *EXACT, "--folder", tmp_path, "--way", way, "--checkpoint", tmp_path / "checkpoint")
    assert "5 of 12 steps" in job(2, *options, "--stop-after", 5)
    assert "12 of 12 steps" in job(later, *options, "--verify")


@pytest.mark.slow
def test_impossible_options_are_refused(job: Callable[..., str], tmp_path: Path) -> None:
    output = job(2, PROGRAM, "--folder", tmp_path, "--batch", 6, status=1)
    assert "--batch 6 cannot be shared by 2 ranks in 2 passes" in output
    output = job(2, PROGRAM, "--folder", tmp_path, "--way", "ddp-gloo", status=1)
    assert "Gloo does not average bfloat16: --wire fp32" in output
