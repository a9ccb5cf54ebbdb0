# SPDX-License-Identifier: Apache-2.0
"""Rules left out of the engine on purpose are noticed: the simulator is able to fail."""

import subprocess
from pathlib import Path
from shutil import rmtree

import pytest
from faults import FAULTS, Fault
from programs import ENGINE, ROOT, Build, simulator

RARE = ("conflict_overtaken", "firm_join", "join_before_refusal")
"""The faults that take most programs to show themselves."""


def planted(build: Build, name: str, fault: Fault) -> Path:
    """The simulator around an engine without the rule: copies of the files that have it."""
    copies = ROOT / "build/tests/faults" / name
    rmtree(copies, ignore_errors=True)
    copies.mkdir(parents=True)
    for piece in fault.pieces:
        copy = copies / piece.file
        text = (copy if copy.exists() else ROOT / "ext/core" / piece.file).read_text()
        assert text.count(piece.old) == 1, f"the recipe for '{fault.rule}' does not fit {piece.file} any more"
        copy.write_text(text.replace(piece.old, piece.new))
    sources = (copies / file.name if (copies / file.name).exists() else file for file in ROOT.glob(ENGINE))
    engine = sorted(str(source.relative_to(ROOT)) for source in sources)
    # What is left unused is no mistake here. All other objects are those of the simulator without a fault.
    return simulator(build, engine=[f"{file} -Wno-error" if file.startswith("build/") else file for file in engine])


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in RARE else n for n in FAULTS])
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
    """B3: overlapping sets that share one buffer (or one stream) deadlock."""
    flags = "--programs 2000 --ranks 2-6 --one-stream 1 --stop 0"
    done = subprocess.run([simulator(build_c), *flags.split()], capture_output=True, text=True, timeout=100)
    assert done.returncode != 0
    assert "batches; rank" in done.stderr
