# SPDX-License-Identifier: Apache-2.0
"""The environments that launchers really give to their ranks, one file per kind of start, and what they mean.

`source` of a file says where it comes from: recorded from a real launcher, or documented, where none could run.
"""

import tomllib
from pathlib import Path

import pytest

from hpccoll import detect
from hpccoll.detect import contradictions

FILES = sorted((Path(__file__).parent / "recorded").glob("*.toml"))
RECORDINGS = {file.stem: tomllib.loads(file.read_text()) for file in FILES}
MPI = [name for name, job in RECORDINGS.items() if job["launcher"] and "torchrun" not in name]
JOBS = [name for name, job in RECORDINGS.items() if job["launcher"]]


def environments(name):
    return [rank["environment"] for rank in RECORDINGS[name]["ranks"]]


@pytest.mark.parametrize("name", RECORDINGS)
def test_who_each_process_is(name):
    job = RECORDINGS[name]
    for rank in job["ranks"]:
        found = detect.place(rank["environment"])
        if not job["launcher"]:
            assert found is None
            continue
        assert found is not None
        assert found.launcher == job["launcher"]
        assert [found.rank, found.size, found.local_rank, found.local_size, found.node] == rank["expect"]


@pytest.mark.parametrize("name", RECORDINGS)
def test_what_the_scheduler_gave(name):
    job = RECORDINGS[name]
    files = job.get("files", {})
    for env in environments(name):
        found = detect.allocation(env, files.__getitem__)
        assert (str(found) if found else "") == job["job"]
        if found and found.slots:
            assert len(found.slots) == len(found.hosts)


@pytest.mark.parametrize("name", JOBS)
def test_processes_of_one_job_know_each_other(name):
    """The processes have one job key, where the launcher has one, and different ranks."""
    places = [detect.place(env) for env in environments(name)]
    assert len({place.job for place in places}) == 1
    assert len({place.rank for place in places}) == len(places)


@pytest.mark.parametrize("name", MPI)
def test_what_fits_is_not_refused(name):
    envs = environments(name)
    size = detect.place(envs[0]).size
    if size == len(envs):  # of the documented ones some ranks are shown
        libraries = ["Open MPI v5.0.11"] * size
        assert contradictions.contradiction_between([detect.place(env) for env in envs], libraries) is None
    assert all(contradictions.tasks(env) == size for env in envs)
    assert not any(contradictions.singleton_problem(env, size) for env in envs)


@pytest.mark.parametrize("name", JOBS)
def test_processes_that_are_alone_for_mpi_are_refused(name):
    for env in environments(name):
        remedy = str(contradictions.singleton_problem(env, 1))
        assert remedy.startswith(f"{RECORDINGS[name]['launcher']} started ")
        assert "HPCCOLL_ALLOW_SINGLETON=1" in remedy
        assert ("torch.distributed" in remedy) == ("torchrun" in name)


@pytest.mark.parametrize("name", RECORDINGS)
def test_the_line_at_the_start(name):
    job = RECORDINGS[name]
    env = environments(name)[0]
    line = detect.started_by(env)
    if job["launcher"]:
        assert line.startswith(f"started by {job['launcher']}")
        assert f"as {detect.place(env).variable} says" in line
    readable = job["job"] and not job.get("files")
    assert not readable or line.endswith(job["job"])
    assert ("unknown hosts" in line) == any(path in env.values() for path in job.get("files", {}))


@pytest.mark.parametrize(("name", "launcher"), [("srun-pmix", "a PMIx launcher"), ("srun-pmi2", "a PMI launcher")])
def test_an_unknown_launcher_is_known_by_its_protocol(name, launcher):
    for rank in RECORDINGS[name]["ranks"]:
        env = {key: value for key, value in rank["environment"].items() if not key.startswith("SLURM")}
        found = detect.place(env)
        assert found.launcher == launcher
        assert found.rank == rank["expect"][0]
        assert found.size == (rank["expect"][1] if "PMI " in launcher else None)


def test_all_launchers_are_covered():
    """Each module has a recorded environment, so that it was seen at work."""
    from hpccoll.detect.search import _modules

    seen = " ".join(f"{job['launcher']} {job['job']}" for job in RECORDINGS.values())
    words = {
        "direct": "hpccoll run",
        "openmpi": "Open MPI", "hydra": "Hydra", "slurm": "srun", "pals": "PALS", "lsf": "LSF", "pbs": "PBS"
    }  # fmt: skip
    for module in _modules():
        name = module.__name__.rpartition(".")[2]
        assert name in ("pmix", "pmi2") or words.get(name, name) in seen
