# SPDX-License-Identifier: Apache-2.0
"""What hpccoll/_core.pyi says is in the extension: names, signatures, attributes."""

import subprocess
import sys
from pathlib import Path

import pytest

ALLOWED = """
# typing_extensions has a decorator for it, and nothing inherits from two of these classes
hpccoll._core.Handle
# made by World and by the functions, never by a caller
hpccoll._core.Handle.__init__
"""


@pytest.mark.timeout(300)
def test_the_stub_says_what_the_extension_has(tmp_path: Path) -> None:
    """Names that no Python file asks for may be missing: mypy refuses those that one does ask for."""
    allowed = tmp_path / "allowed"
    allowed.write_text(ALLOWED)
    command = [sys.executable, "-m", "mypy.stubtest", "hpccoll._core", "--concise", "--ignore-missing-stub"]
    done = subprocess.run([*command, "--allowlist", str(allowed)], capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
