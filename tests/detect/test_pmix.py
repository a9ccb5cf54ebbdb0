# SPDX-License-Identifier: Apache-2.0
"""Open MPI 5 under an old Slurm's PMIx with three ranks per node: found out before MPI starts, where it would fail."""

import sys
import tomllib
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import mpi4py
import pytest

from hpccoll import config, errors, inherited
from hpccoll.detect import pmix

RECORDED = Path(__file__).parent / "recorded" / "srun-pmix-three-a-node.toml"
OPEN_MPI_5 = "Open MPI v5.0.11, package: Open MPI user@localhost Distribution, ident: 5.0.11"
ANSWERS = {"knows": 0, "does not know": -46, "is out of reach": -25}

Clients = dict[str, Path]


@pytest.fixture(scope="module")
def clients(build_c: Callable[..., Path]) -> Clients:
    """Make PMIx clients, by what their server does."""
    return {
        server: build_c("tests/detect/pmix.c", flags=("-shared", f"-DANSWER={answer}"))
        for server, answer in ANSWERS.items()
    }


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch, clients: Clients) -> Callable[..., None]:
    """Begin a World as rank 2 of the recorded step would, up to where MPI starts."""
    environment = tomllib.loads(RECORDED.read_text())["ranks"][2]["environment"]

    class MpiStartsError(Exception):
        pass

    def begin(server: str, **knobs: object) -> None:
        from hpccoll import _mpi

        settings = config.read(verbose=0, **knobs)
        monkeypatch.setattr(inherited, "environment", lambda: environment)
        monkeypatch.setattr(_mpi, "library_version", lambda: OPEN_MPI_5)
        monkeypatch.setattr(pmix, "library_in", lambda maps: str(clients[server]))
        monkeypatch.delitem(sys.modules, "mpi4py.MPI", raising=False)
        monkeypatch.delattr(mpi4py, "MPI", raising=False)

        class Finder:
            @staticmethod
            def find_spec(name: str, *_: object) -> None:
                if name == "mpi4py.MPI":
                    raise MpiStartsError

        monkeypatch.setattr(sys, "meta_path", [Finder, *sys.meta_path])
        try:
            import_module("hpccoll.default_rendezvous").choose(None, settings)
        except MpiStartsError:
            return
        pytest.fail("no MPI and no error")

    return begin


def test_the_server_is_asked(clients: Clients) -> None:
    assert pmix.knows_local_size(str(clients["knows"])) is True
    assert pmix.knows_local_size(str(clients["does not know"])) is False
    assert pmix.knows_local_size(str(clients["is out of reach"])) is None
    assert pmix.knows_local_size("/nowhere/libpmix.so.2") is None


def test_the_client_is_the_one_that_mpi_has_loaded() -> None:
    maps = (
        "7f0000000000-7f0000001000 r-xp 00000000 00:00 0\n"
        "7f0000001000-7f0000002000 r-xp 00000000 08:01 42     /opt/my mpi/lib/libpmix.so.2.13.1\n"
        "7f0000002000-7f0000003000 r-xp 00000000 08:01 43     /opt/my mpi/lib/libmpi.so.40\n"
    )
    assert pmix.library_in(maps) == "/opt/my mpi/lib/libpmix.so.2.13.1"
    assert pmix.library_in(maps.replace("pmix", "else")) == ""


def test_what_would_fail_is_refused_with_the_remedy(start: Callable[..., None]) -> None:
    with pytest.raises(errors.StartError, match=r"PMIx 4\.2\.2 and 3 ranks per node.*mpirun.*HPCCOLL_TRUST_MPI=1"):
        start("does not know")


def test_who_means_it_starts_mpi(start: Callable[..., None]) -> None:
    start("does not know", trust_mpi=True)


def test_what_works_starts_in_silence(start: Callable[..., None], capfd: pytest.CaptureFixture[str]) -> None:
    start("knows")
    assert capfd.readouterr().err == ""


def test_no_answer_is_no_verdict(start: Callable[..., None]) -> None:
    start("is out of reach")
