# SPDX-License-Identifier: Apache-2.0
"""The driver's side: a barrier stage with a task per rank, over RDDs, or over DataFrames where there are none."""

from __future__ import annotations

import contextlib
import functools
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pyspark import SparkContext, cloudpickle
from pyspark.sql import SparkSession

from hpccoll import errors
from hpccoll.channel import new_secret
from hpccoll.spark.task import Outcome, Task, in_barrier
from hpccoll.tools.launch.blame import Failure, error_of
from hpccoll.tools.launch.job import LaunchError

__all__ = ["context_of", "reason", "run"]


def run(
    fn: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    num_proc: int | None = None,
    start_timeout: float | None = None,
    *,
    env: Mapping[str, str] | None = None,
    nics: str | Sequence[str] | None = None,
    executable: str | None = None,
    use_gloo: bool | None = None,
    verbose: int = 1,
) -> list[Any]:
    """Call a function on all ranks of a new job, which Spark starts, and wait for its results.

    The ranks are new processes, one per task of a barrier stage, for which Spark must have as many free slots. The
    function calls `hpccoll.init()`, or that of a front end, itself. What ranks print is in the logs of the executors.

    If a rank fails, the others get some seconds, and the call raises. If an executor is lost, Spark ends the tasks, and
    the ranks with them.

    :param fn: what each rank calls
    :param args: its arguments, the same on all ranks
    :param kwargs: its arguments by keyword
    :param num_proc: how many ranks; None: `spark.default.parallelism`
    :param start_timeout: seconds that the ranks have to meet in `init()`; None: HPCCOLL_START_TIMEOUT
    :param env: variables to set in the ranks
    :param nics: interfaces that carry data between hosts (HPCCOLL_INTERFACE); None: chosen
    :param executable: the Python of the ranks; None: that of the executors
    :param use_gloo: Horovod's, without effect: the ranks meet without MPI in any case
    :param verbose: Horovod's, without effect
    :returns: what the function returned, of all ranks in their order
    :raises RankError: the function raised on some rank, or a rank was lost; names the rank that failed first
    :raises LaunchError: there is no Spark session, Spark has too few slots, or it has lost an executor
    """
    del use_gloo, verbose
    session = SparkSession.getActiveSession()
    context = None if session is None and SparkContext._active_spark_context is None else context_of(session)  # noqa: SLF001
    if session is None and context is None:
        raise LaunchError("hpccoll.spark.run: there is no Spark session: SparkSession.builder.getOrCreate()")
    size = num_proc or (context.defaultParallelism if context else 0)
    if size < 1:
        raise errors.InvalidArgumentError(f"hpccoll.spark.run: num_proc is {num_proc}: say how many ranks")
    interface = nics if isinstance(nics, str) else ",".join(nics or ())
    variables = {"HPCCOLL_START_TIMEOUT": f"{start_timeout:g}"} if start_timeout else {}
    variables |= {"HPCCOLL_INTERFACE": interface} if interface else {}
    function = cloudpickle.dumps((fn, tuple(args), dict(kwargs or {})))
    task = Task(function, new_secret(), {**variables, **(env or {})}, executable or "")
    try:
        outcomes = _over_rdd(context, task, size) if context else _over_frame(session, task, size)
    except Exception as error:
        why = reason(error)
        raise LaunchError(f"hpccoll.spark.run: Spark has not run the {size} ranks to their end: {why}") from error
    return _results(outcomes)


def context_of(session: Any) -> Any:
    """Return the SparkContext; None with Spark Connect, which has no context."""
    with contextlib.suppress(Exception):  # of a class that depends on Spark's version
        return session.sparkContext if session is not None else SparkContext._active_spark_context  # noqa: SLF001
    return None


def _over_rdd(context: Any, task: Task, size: int) -> list[Outcome]:
    stage = context.parallelize(range(size), size).barrier()
    outcomes: list[Outcome] = stage.mapPartitions(functools.partial(in_barrier, task)).collect()
    return outcomes


def _over_frame(session: Any, task: Task, size: int) -> list[Outcome]:
    rows = session.range(0, size, 1, size).mapInPandas(
        functools.partial(_in_frames, task), "outcome binary", barrier=True
    )
    return [pickle.loads(row.outcome) for row in rows.collect()]


def reason(error: Exception) -> str:
    """Spark's error message, in one line, without the stack of its scheduler."""
    before, _, after = str(error).partition("SparkException: ")
    lines = (after or before).partition("\n\tat ")[0].partition("\nDriver stacktrace")[0].splitlines()
    return " ".join(line.strip() for line in lines if line.strip()) or type(error).__name__


def _in_frames(task: Task, frames: Iterator[Any]) -> Iterator[Any]:
    import pandas

    for frame in frames:
        del frame
    for outcome in in_barrier(task, ()):
        yield pandas.DataFrame({"outcome": [pickle.dumps(outcome)]})


def _results(outcomes: Sequence[Outcome]) -> list[Any]:
    failures, values = [], []
    for outcome in sorted(outcomes, key=lambda outcome: outcome.rank):
        if not outcome.answer:
            lost = not outcome.ended_by_agent
            how = outcome.how if lost else f"{outcome.how}: its agent ended it, because another rank had failed"
            failures.append(Failure(outcome.rank, outcome.place, how, lost=lost))
            continue
        value, problem = pickle.loads(outcome.answer)
        if problem is None:
            values.append(value)
            continue
        _, text, pickled = problem
        error = None
        with contextlib.suppress(Exception):  # its class may refuse to be unpickled
            error = pickle.loads(pickled)
        failures.append(Failure(outcome.rank, outcome.place, text, error))
    if failures:
        raise error_of(failures)
    return values
