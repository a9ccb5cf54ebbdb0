# SPDX-License-Identifier: Apache-2.0
"""Rules left out of the engine on purpose are noticed: the simulator is able to fail."""

import subprocess
from pathlib import Path
from shutil import copytree, rmtree

import pytest

from faults import FAULTS, Fault
from programs import ROOT, simulator


def planted(name: str, fault: Fault) -> Path:
    """A copy of the engine without the rule, and the simulator around it."""
    engine = ROOT / "build/tests/faults" / name
    rmtree(engine, ignore_errors=True)
    copytree(ROOT / "ext/core", engine)
    for file, old, new in fault.pieces:
        text = (engine / file).read_text()
        assert text.count(old) == 1, f"the recipe for '{fault.rule}' does not fit {file} any more"
        (engine / file).write_text(text.replace(old, new))
    return simulator("-Wno-error", "-O0", engine=f"{engine.relative_to(ROOT)}/*.c")


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.timeout(300)
def test_fault_is_noticed(name: str) -> None:
    fault = FAULTS[name]
    program = planted(name, fault)
    command = [program, "--programs", str(fault.programs), "--ranks", "1-6", *fault.flags.split()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert done.returncode != 0, f"{fault.rule}: not noticed in {fault.programs} programs"
    print(f"{fault.rule}: {done.stderr}")


def test_one_buffer_for_all_sets() -> None:
    """B3: overlapping sets that share one buffer (or one stream) without a sequencer deadlock."""
    command = [simulator(), "--programs", "2000", "--ranks", "2-6", "--sequenced", "0", "--one-stream", "1", "--stop", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode != 0
    assert "batches; rank" in done.stderr
