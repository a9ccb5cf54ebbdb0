# SPDX-License-Identifier: Apache-2.0
"""Records of whether MPI can use device memory: which of them a job believes, and what it says of the others."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpccoll.checks import proofs
from hpccoll.checks.proofs import REMEDY, Proof, Setup, Verdict

HERE = Setup("Open MPI v5.0.11", "srun", "580.65.06", "0.1.0", {"UCX_TLS": "rc,cuda"})
H200 = "NVIDIA H200, CUDA 13.0"
A100 = "NVIDIA A100, CUDA 12.4"


def proof(day: int = 1, **changes: Any) -> Proof:
    """Make a proof on two nodes; `changes` are fields of its setup or of itself."""
    setup = {name: value for name, value in changes.items() if name in Setup.__annotations__}
    own = {name: value for name, value in changes.items() if name not in setup}
    whole = Proof(True, "", replace(HERE, **setup), [H200], 2, ["h1", "h2"], f"2026-11-{day:02}T00:00:00+00:00", "FILE")
    return replace(whole, **own)


def verdict(*found: Proof, wrong: str = "", nodes: int = 2) -> Verdict:
    return proofs.verdict(found, wrong, HERE, nodes)


def test_a_proof_that_fits_counts() -> None:
    assert verdict(proof()) == Verdict([H200], "")
    assert verdict(proof(), proof(devices=[A100])).devices == [H200, A100]
    assert verdict(proof(hosts=["h1"]), nodes=1).devices == [H200]


@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        ({"mpi": "Open MPI v5.0.3"}, "Open MPI v5.0.3, and here is Open MPI v5.0.11"),
        ({"launcher": "mpirun"}, "launcher mpirun, and here is launcher srun"),
        ({"launcher": ""}, "launcher (none), and here is launcher srun"),
        ({"kernel_driver": "550.1"}, "kernel driver 550.1, and here is kernel driver 580.65.06"),
        ({"hpccoll": "0.0.9"}, "hpccoll 0.0.9, and here is hpccoll 0.1.0"),
        ({"settings": {}}, "other settings: UCX_TLS"),
        ({"settings": {"UCX_TLS": "tcp", "FI_PROVIDER": "x"}}, "other settings: FI_PROVIDER, UCX_TLS"),
        ({"hosts": ["h1"]}, "one node, and here are 2"),
    ],
)
def test_a_proof_of_something_else_is_not_believed(changes: dict[str, Any], difference: str) -> None:
    found = verdict(proof(**changes))
    assert found == Verdict([], f"the proof of 2026-11-01 in FILE is for {difference}: {REMEDY} again")


def test_the_latest_verdict_counts() -> None:
    no = proof(2, proved=False, why="an allreduce ended the process with status -11")
    assert verdict(proof(1), no) == Verdict([], f"tried on 2026-11-02, and {no.why}")
    assert verdict(proof(3), no) == Verdict([H200], "")
    assert verdict(proof(1), replace(no, devices=[A100])).devices == [H200]


def test_nothing_is_said_of_what_is_not_there() -> None:
    assert verdict() == Verdict([], f"not tried: {REMEDY}")
    assert verdict(wrong="FILE cannot be read") == Verdict([], "FILE cannot be read")


def test_files() -> None:
    user, site = proofs.files("", {"HOME": "/home/me"})
    assert str(user) == "/home/me/.config/hpccoll/gpu_aware_mpi.json"
    assert str(site).endswith("/etc/hpccoll/gpu_aware_mpi.json")
    assert proofs.files("", {"HOME": "/", "XDG_CONFIG_HOME": "/c"})[0] == Path("/c/hpccoll/gpu_aware_mpi.json")
    assert proofs.files("/site/record", {}) == [Path("/site/record")]


def test_what_is_written_is_read(tmp_path: Path) -> None:
    """A verdict takes the place of those on the same; the others stay."""
    file = tmp_path / "new" / "record.json"
    for one in (proof(1), proof(2, mpi="MPICH"), proof(3, hosts=["h1"]), proof(4, proved=False, why="no")):
        proofs.write(file, one)
    found, wrong = proofs.read([tmp_path / "none", file])
    assert wrong == ""
    assert [p.date[8:10] for p in found] == ["02", "03", "04"]
    assert found[2] == replace(proof(4, proved=False, why="no"), file=str(file))
    assert [path.name for path in file.parent.iterdir()] == ["record.json"]


@pytest.mark.parametrize("text", ["", "[]", '{"proofs": [{}]}', '{"proofs": [{"proved": "yes"}]}'])
def test_a_file_that_cannot_be_read_is_named_and_kept(tmp_path: Path, text: str) -> None:
    file = tmp_path / "record.json"
    file.write_text(text)
    found, wrong = proofs.read([file])
    assert found == []
    assert wrong.startswith(f"{file} cannot be read (")
    with pytest.raises(OSError, match="cannot be read"):
        proofs.write(file, proof())
    assert file.read_text() == text


def test_a_value_of_another_type_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "record.json"
    proofs.write(file, proof())
    file.write_text(file.read_text().replace('"proved": true', '"proved": "true"'))
    assert "proved is 'true'" in proofs.read([file])[1]


def test_settings_and_driver_of_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    version = tmp_path / "version"
    monkeypatch.setattr(proofs, "KERNEL_DRIVER", version)
    assert proofs.kernel_driver() == ""
    version.write_text("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build\nGCC\n")
    here = proofs.setup("MPICH", "srun", {"UCX_TLS": "rc", "OMPI_MCA_btl": "tcp", "OMPI_MCA_ess": "x", "PATH": "/"})
    assert (here.mpi, here.launcher, here.kernel_driver) == ("MPICH", "srun", "580.65.06")
    assert here.settings == {"OMPI_MCA_btl": "tcp", "UCX_TLS": "rc"}
