# SPDX-License-Identifier: Apache-2.0
"""The C core on processors that HPC machines have and this one has not: cross-compiled, run by QEMU.

One program per layer, as the layers' own tests build them: engines under random programs, the node's shared memory, the
hierarchy over it, the loop with its threads. QEMU orders memory like the host, so that a missing barrier would not
show here; tests/memory_model explores that.
"""

import shutil
from collections.abc import Callable
from glob import glob
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROCESSORS = {"aarch64": "aarch64-linux-gnu-gcc", "ppc64le": "powerpc64le-linux-gnu-gcc"}
CORE, TRANSPORT, LOOP = (
    tuple(f for f in sorted(glob(f"ext/{layer}/**/*.c", root_dir=ROOT, recursive=True)) if not f.endswith("/mpi.c"))
    for layer in ("core", "transport", "loop")
)
PROGRAMS = {
    "engine": (
        ("tests/core/sim.c", "tests/core/simulator/*.c", *CORE),
        ("--programs", 100, "--ranks", "1-16"),
    ),
    "hierarchy": (
        ("tests/transport/hierarchy/hierarchy_driver.c", *TRANSPORT, "ext/core/reserve.c", "ext/core/status.c"),
        ("0,0,1,1", 1, 30),
    ),
    "loop": (("tests/loop/threads.c", *CORE, *TRANSPORT, *LOOP), (2, 2, 2, 5, 1)),
}


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("processor", PROCESSORS)
def test_runs(
    build_c: Callable[..., Path],
    run_c: Callable[..., str],
    needs: Callable[..., None],
    processor: str,
    program: str,
) -> None:
    compiler, emulator = PROCESSORS[processor], f"qemu-{processor}-static"
    needs(compiler, emulator)
    sources, arguments = PROGRAMS[program]
    built = build_c(*sources, flags=("-static",), compiler=compiler, name=f"{program}-{processor}")
    assert run_c(Path(str(shutil.which(emulator))), built, *arguments, timeout=300)
