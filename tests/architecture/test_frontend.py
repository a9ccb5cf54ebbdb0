# SPDX-License-Identifier: Apache-2.0
"""The seam for frameworks knows no framework (that it imports none is import-linter's to check, in `make check`)."""

import re
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "hpccoll" / "frontend"
FRAMEWORKS = re.compile(r"(?<![a-z])(py)?torch|tensorflow|keras|jax|mxnet|cupy", re.IGNORECASE)


def test_no_framework_is_named() -> None:
    files = sorted(PACKAGE.glob("*.py"))
    assert len(files) > 10
    assert not [file.name for file in files if FRAMEWORKS.search(file.read_text())]


def test_the_rule_finds_a_framework() -> None:
    assert FRAMEWORKS.search("from torch import Tensor")
    assert FRAMEWORKS.search("as in PyTorch")
