# SPDX-License-Identifier: Apache-2.0
"""Programs of this folder at several ranks."""

import importlib.metadata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

slow = pytest.mark.slow  # tests/system_matrix.py has environments with the oldest and the newest TensorFlow
HERE = Path(__file__).parent
Job = Callable[..., str]
FOUND = list(importlib.metadata.distributions(name="tensorflow-cpu"))
FOUND += importlib.metadata.distributions(name="tensorflow")
OLD = not any(tuple(map(int, one.version.split(".")[:2])) >= (2, 21) for one in FOUND)
compiled = pytest.param("compiled", marks=pytest.mark.skipif(OLD, reason="needs TensorFlow 2.21"))


@pytest.mark.timeout(100)
def test_in_short(job: Job) -> None:
    """What `make test` has of TensorFlow; without Keras, which would take 2 s more."""
    assert "rank 0 passed" in job("smoke.py", limit=60, TF_USE_LEGACY_KERAS="1")


@slow
@pytest.mark.timeout(450)
def test_two_ranks(job: Job) -> None:
    """Every operation eager and in tf.function, derivatives, tapes, orders, loops, errors."""
    printed = job("operations.py")
    assert printed.count("check_tapes passed") == 2


@slow
@pytest.mark.timeout(450)
def test_three_ranks_on_two_nodes(job: Job) -> None:
    job("operations.py", ranks=3, nodes=2)


@slow
@pytest.mark.timeout(450)
@pytest.mark.parametrize("ranks", [2, 3])
def test_derivatives(job: Job, ranks: int) -> None:
    """Eager, in tf.function, in sessions, under XLA."""
    assert job("gradients.py", ranks=ranks).count("passed") == 5 * ranks


@slow
@pytest.mark.timeout(100)
def test_derivatives_of_other_losses(ended: Callable[..., Any]) -> None:
    """On rank 0 the loss has more steps than on rank 1. A World that waited in vain ends the job."""
    done = ended("uneven.py", HPCCOLL_STALL_LIMIT="2", options=("--launcher-options=--enable-recovery",))
    assert done.stdout.count("passed") == 2, done.stdout


@slow
@pytest.mark.timeout(100)
def test_a_gradient_that_is_sparse_on_one_rank(ended: Callable[..., Any]) -> None:
    """The reports name the variable, and tell the kinds of its gradient apart."""
    limits = {"HPCCOLL_STALL_WARNING": "1", "HPCCOLL_STALL_LIMIT": "3"}
    done = ended("sparse_here.py", options=("--launcher-options=--enable-recovery",), **limits)
    assert done.stdout.count("passed") == 2, done.stdout
    assert "rank 0: allgather 'allgather.gradient.table as IndexedSlices_1of2' has waited" in done.stdout
    assert "rank 1: allreduce 'allreduce.gradient.table' has waited" in done.stdout


@slow
@pytest.mark.timeout(450)
@pytest.mark.parametrize("ranks", [2, 3])
def test_calls_of_equal_names(job: Job, ranks: int) -> None:
    """Tapes, variables, functions in functions, branches, loops, derivatives; ranks trace in other orders."""
    assert job("unique_names.py", ranks=ranks).count("passed") == 10 * ranks


@slow
@pytest.mark.timeout(450)
def test_training(job: Job) -> None:
    """A network learns digits; an uneven end of the data; batch normalization; an optimizer of a session."""
    assert job("training.py").count("trained") == 2


@slow
@pytest.mark.timeout(450)
@pytest.mark.parametrize(
    ("program", "module"), [("horovod_mnist.py", "tensorflow"), ("horovod_keras_mnist.py", "tensorflow.keras")]
)
def test_a_program_for_horovod(
    job: Job, program: str, module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only its import has changed."""
    text = (HERE / program).read_text()
    assert text.count("import horovod.") == 1
    (tmp_path / "train.py").write_text(text.replace(f"import horovod.{module} ", f"import hpccoll.{module} "))
    monkeypatch.chdir(tmp_path)  # it writes checkpoints
    assert "Test accuracy: 0.9" in job(str(tmp_path / "train.py"))
    assert list(tmp_path.glob("checkpoint*"))


@slow
@pytest.mark.timeout(450)
def test_functions(job: Job) -> None:
    """Process sets, facts, groups of variables, local layers, objects."""
    assert job("functions.py", ranks=3).count("passed") == 21


@slow
@pytest.mark.timeout(450)
@pytest.mark.parametrize(("ranks", "nodes"), [(2, 1), (3, 2)])
def test_optimizers(job: Job, ranks: int, nodes: int) -> None:
    """Several backward passes, Adasum of changes, local and generic sources, slices, name scopes, masks."""
    assert job("optimizers.py", ranks=ranks, nodes=nodes).count("passed") == 9 * ranks


@slow
@pytest.mark.timeout(450)
@pytest.mark.parametrize("arguments", [(), ("old",)])
def test_sessions(job: Job, arguments: tuple[str, ...]) -> None:
    assert job("sessions.py", *arguments).count("passed") == 2 * 6


@slow
@pytest.mark.timeout(450)
@pytest.mark.parametrize("ranks", [2, 3])
def test_bad_input(job: Job, ranks: int) -> None:
    assert job("wrong.py", ranks=ranks).count("passed") == 13 * ranks


@slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("ranks", "nodes", "threads"), [(2, 1, 1), (2, 2, 3), (4, 2, 2)])
def test_random_programs_end(job: Job, ranks: int, nodes: int, threads: int) -> None:
    """TensorFlow has 1 to 3 threads for operations; decision 45 says how many were tried."""
    printed = job("orders.py", str(1000 * ranks), "30", str(threads), ranks=ranks, nodes=nodes, limit=800)
    assert printed.count("30 programs have ended") == ranks


@slow
@pytest.mark.timeout(450)
@pytest.mark.parametrize(("ranks", "nodes", "last"), [(2, 1, 20), (3, 2, 5)])
def test_programs_that_xla_compiles(job: Job, ranks: int, nodes: int, last: int) -> None:
    """Values, derivatives, orders, loops, errors, random programs, Keras; an older TensorFlow says that it cannot."""
    printed = job("compiled.py", "0", str(last), ranks=ranks, nodes=nodes)
    assert printed.count("there is no XLA" if OLD else "passed") == (1 if OLD else 17) * ranks


@slow
@pytest.mark.timeout(450)
def test_memory_stays_as_it_is(job: Job) -> None:
    """10,000 steps were tried, too."""
    assert job("steps.py", "3000").count("3000 steps") == 2


@slow
@pytest.mark.timeout(450)
@pytest.mark.parametrize(("ranks", "threads"), [(2, 1), (3, 2), (4, 3)])
def test_a_rank_is_killed_among_random_programs(ended: Callable[..., Any], ranks: int, threads: int) -> None:
    options = ("--launcher-options=--enable-recovery",)
    done = ended("orders.py", str(100 * ranks), str(5 + ranks), str(threads), "kill", ranks=ranks, options=options)
    assert done.stdout.count("the lost rank is named") == ranks - 1, done.stdout


@slow
@pytest.mark.timeout(450)
@pytest.mark.parametrize("program", ["eager", "function", "gradients", "session", compiled])
def test_a_killed_rank_is_named(ended: Callable[..., Any], program: str) -> None:
    """In a graph as TensorFlow's UnavailableError; where XLA compiles, TensorFlow makes an InternalError of it."""
    kinds = {"eager": "PeerLostError", "compiled": "InternalError"}
    printed = ended("killed.py", program, ranks=3, options=("--launcher-options=--enable-recovery",)).stdout
    for rank in (0, 2):
        told = printed.split(f"rank {rank} saw it: ")[1].splitlines()[0]
        assert told.startswith(kinds.get(program, "UnavailableError"))
        assert "rank 1 (host" in told
        assert "was lost: its process is gone" in told


@slow
@pytest.mark.timeout(450)
@pytest.mark.parametrize("program", ["function", "keras", "session", compiled])
def test_training_goes_on_when_a_rank_is_lost_and_when_one_comes(job: Job, program: str, tmp_path: Path) -> None:
    printed = job("elastic.py", str(tmp_path / "victim"), program, ranks=3, options=("--min-np", "2"))
    assert " steps, with 3 ranks at the end" in printed
    assert "rank 0 (host localhost, slot 0) was lost" in printed


@slow
@pytest.mark.timeout(450)
def test_another_number_of_ranks(job: Job) -> None:
    """What was traced for two ranks does not give their means and derivatives to one."""
    assert job("resized.py").count("passed") == 2


@slow
@pytest.mark.timeout(450)
@pytest.mark.parametrize("program", ["variables", "keras", "session"])
def test_elastic_states(job: Job, program: str) -> None:
    """What sync() gave is what restore() goes back to; every sequence of calls, compared with a model."""
    assert job("states.py", program).count("passed") == 2


@slow
@pytest.mark.timeout(450)
@pytest.mark.parametrize("ranks", [2, 3])
def test_data_service(job: Job, ranks: int, tmp_path: Path) -> None:
    """Dispatchers and workers of tf.data beside the ranks, on both sides; servers that cannot start."""
    assert job("data_service.py", str(tmp_path), ranks=ranks).count("passed") == 5 * ranks


@slow
@pytest.mark.timeout(450)
def test_an_operation_that_is_never_begun_is_named(ended: Callable[..., Any]) -> None:
    """TensorFlow begins no more operations of a program of which one has failed; a rank may have begun one before."""
    limits = {"HPCCOLL_STALL_WARNING": "5", "HPCCOLL_STALL_LIMIT": "15"}
    done = ended("functions.py", "lost", ranks=3, **limits)
    assert done.returncode
    assert "allreduce 'allreduce.other' has waited 5.0 s for 2 of 3 ranks" in done.stdout
    assert "then StallError: allreduce 'allreduce.other'" in done.stdout
