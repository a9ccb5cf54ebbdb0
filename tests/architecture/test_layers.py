# SPDX-License-Identifier: Apache-2.0
"""A lower layer never includes or imports an upper one (Python's half is import-linter's, in `make check`)."""

import re
from pathlib import Path

import pytest

EXT = Path(__file__).resolve().parents[2] / "ext"
SOURCES = sorted(EXT.rglob("*.[ch]"))
SEES = {  # layer: headers of lower layers that it may include
    "core": set(),
    "transport": {"core/fnv.h", "core/hc.h", "core/reserve.h"},
    "fleet": {"core/hc.h"},
    "cuda": {"core/hc.h", "transport/transport.h"},
    "loop": {
        "core/fnv.h",
        "core/hc.h",
        "transport/transport.h",
        "transport/shm/shm.h",
        "transport/shm/shortcut.h",
        "transport/net/vote.h",
        "transport/p2p/p2p.h",
    },
    "world": {
        "core/fnv.h",
        "core/hc.h",
        "transport/hierarchy/hierarchy.h",
        "transport/shm/shm.h",
        "transport/shm/shortcut.h",
        "transport/shm/slices.h",
        "loop/loop.h",
        "rendezvous/exchange.h",
    },
    "rendezvous": {
        "core/fnv.h",
        "core/hc.h",
        "transport/net/net.h",
        "transport/net/ucx_interfaces.h",
        "transport/net/ucx_net.h",
    },
    "gate": {"core/hc.h", "loop/loop.h", "loop/waiting.h", "world/arguments.h"},
    "api": {
        "core/fnv.h",
        "core/hc.h",
        "cuda/accelerator.h",
        "transport/arithmetic.h",
        "transport/shm/shm.h",
        "transport/net/mpi_net.h",
        "transport/net/ucx_net.h",
        "rendezvous/rendezvous.h",
        "rendezvous/ucx_start.h",
        "loop/loop.h",
        "world/arguments.h",
        "world/grid.h",
        "world/halo.h",
        "world/job.h",
        "world/machines.h",
        "world/segments.h",
        "world/set_agreement.h",
        "world/start.h",
        "world/user_reduction.h",
    },
    "cython": {"core/hc.h"},
    "xla": {"gate/gate.h"},
    "tensorflow": {"gate/gate.h"},
}


def includes(source: Path) -> list[tuple[str, str]]:
    """('"', 'path from ext/') or ('<', 'header') of each #include."""
    found = re.findall(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', source.read_text(), re.MULTILINE)
    missing = [name for q, name in found if q == '"' and not (EXT / name).exists()]
    assert not missing, f"{source} includes {missing}, which is no path from ext/"
    return found


def test_there_are_sources() -> None:
    assert {source.relative_to(EXT).parts[0] for source in SOURCES} == set(SEES)


@pytest.mark.parametrize("layer", SEES)
def test_includes_only_lower_layers(layer: str) -> None:
    for source in sorted((EXT / layer).rglob("*.[ch]")):
        others = {name for q, name in includes(source) if q == '"' and not name.startswith(f"{layer}/")}
        assert others <= SEES[layer], source


def test_the_engine_needs_only_c_itself() -> None:
    of_c = {"stddef.h", "stdint.h", "stdbool.h", "stdatomic.h", "limits.h", "string.h", "stdlib.h"}
    for source in sorted((EXT / "core").glob("*.[ch]")):
        assert {name for q, name in includes(source) if q == "<"} <= of_c, source


def test_no_file_needs_an_mpi_or_ucx_to_compile() -> None:
    for source in SOURCES:
        assert not {name for q, name in includes(source) if q == "<" and ("mpi" in name or "ucp/" in name)}, source
