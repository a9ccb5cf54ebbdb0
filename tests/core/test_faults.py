# SPDX-License-Identifier: Apache-2.0
"""Rules left out of the engine on purpose are noticed: the simulator is able to fail."""

import subprocess
from pathlib import Path
from shutil import copytree, rmtree

import pytest
from faults import FAULTS, Fault
from programs import ROOT, Build, simulator


def planted(build: Build, name: str, fault: Fault) -> Path:
    """A copy of the engine without the rule, and the simulator around it."""
    engine = ROOT / "build/tests/faults" / name
    rmtree(engine, ignore_errors=True)
    copytree(ROOT / "ext/core", engine)
    for piece in fault.pieces:
        path = engine / piece.file
        text = path.read_text()
        assert text.count(piece.old) == 1, f"the recipe for '{fault.rule}' does not fit {piece.file} any more"
        path.write_text(text.replace(piece.old, piece.new))
    return simulator(build, "-Wno-error", "-O0", engine=f"{engine.relative_to(ROOT)}/*.c")


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.timeout(300)
def test_fault_is_noticed(build_c: Build, name: str) -> None:
    fault = FAULTS[name]
    program = planted(build_c, name, fault)
    flags = f"--programs {fault.programs} --ranks 1-6 --stop 0 {fault.flags}"
    done = subprocess.run([program, *flags.split()], capture_output=True, text=True, timeout=280)
    assert done.returncode != 0, f"{fault.rule}: not noticed in {fault.programs} programs"
    assert "replay:" in done.stderr, done.stderr
    print(f"{fault.rule}: {done.stderr}")


def test_one_buffer_for_all_sets(build_c: Build) -> None:
    """B3: overlapping sets that share one buffer (or one stream) without a sequencer deadlock."""
    flags = "--programs 2000 --ranks 2-6 --sequenced 0 --one-stream 1 --stop 0"
    done = subprocess.run([simulator(build_c), *flags.split()], capture_output=True, text=True, timeout=100)
    assert done.returncode != 0
    assert "batches; rank" in done.stderr
