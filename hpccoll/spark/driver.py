# SPDX-License-Identifier: Apache-2.0
"""The driver's side: a barrier stage with a task per rank, over RDDs, or over DataFrames where there are none."""

import contextlib
import functools
import pickle
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyspark
from pyspark import SparkContext, cloudpickle
from pyspark.sql import SparkSession

from hpccoll import errors
from hpccoll.channel import new_secret
from hpccoll.spark.columns import without_vectors
from hpccoll.spark.spool import on_rank
from hpccoll.spark.task import Outcome, Task, in_arrow, in_barrier
from hpccoll.tools.launch.blame import Failure, error_of
from hpccoll.tools.launch.function import checked_variables
from hpccoll.tools.launch.job import LaunchError

__all__ = [
    "Settings", "check_version", "context_of", "ranks_of", "reason", "run", "run_on_dataframe", "start_on_rows",
    "start_ranks",
]  # fmt: skip

OLDEST = (3, 5)
"""The first Spark whose mapInArrow has barrier stages."""
REGISTERING = 30.0
"""Seconds that executors of a cluster have to register, as `spark.scheduler.maxRegisteredResourcesWaitingTime`."""


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
    :raises InvalidArgumentError: (a ValueError) `env` has what is no variable
    :raises LaunchError: there is no Spark session, Spark has too few slots, or it has lost an executor
    """
    del use_gloo, verbose
    what = "hpccoll.spark.run"
    session: Any = SparkSession.getActiveSession()
    context = context_of(session)
    if session is None and context is None:
        raise LaunchError(f"{what}: there is no Spark session: SparkSession.builder.getOrCreate()")
    size = ranks_of(what, context, num_proc)
    arguments = tuple(args), dict(kwargs or {})
    return start_ranks(what, session, fn, arguments, size, (start_timeout, env, nics, executable))


def run_on_dataframe(
    fn: Callable[..., Any],
    df: Any,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    num_proc: int | None = None,
    start_timeout: float | None = None,
    *,
    repartition: bool = True,
    env: Mapping[str, str] | None = None,
    nics: str | Sequence[str] | None = None,
    executable: str | None = None,
) -> list[Any]:
    """Call a function on all ranks of a new job, each with its own rows of a DataFrame, and wait for its results.

    Each task of the barrier stage writes its rows into an Arrow IPC file in Spark's local directory. Its rank maps this
    file into memory, so rows may take more memory than the machine has, and the function may read them several times.

    >>> def count(batches):
    ...     return sum(batch.num_rows for batch in batches)
    >>> rows = hpccoll.spark.run_on_dataframe(count, df, num_proc=4)  # one number of each rank

    :param fn: what each rank calls, as `fn(batches, *args, **kwargs)`. `batches` iterates over the pyarrow.RecordBatch
        of the rank's rows, and may be iterated over again
    :param df: a DataFrame; its columns of vectors become arrays of doubles
    :param args: further arguments, the same on all ranks
    :param kwargs: arguments by keyword
    :param num_proc: how many ranks; None: `spark.default.parallelism`
    :param start_timeout: seconds that the ranks have to meet in `init()`; None: HPCCOLL_START_TIMEOUT
    :param repartition: deal the rows out, about as many to each rank; False: `df` has `num_proc` partitions, and each
        rank gets the rows of one of them, in their order
    :param env: variables to set in the ranks
    :param nics: interfaces that carry data between hosts (HPCCOLL_INTERFACE); None: chosen
    :param executable: the Python of the ranks; None: that of the executors
    :returns: what the function returned, of all ranks in their order
    :raises InvalidArgumentError: (a ValueError) with `repartition=False`, `df` has another number of partitions
    :raises RankError: the function raised on some rank, or a rank was lost; names the rank that failed first
    :raises LaunchError: Spark has too few slots, has lost an executor, or is older than 3.5; or `df` has no rows
    """
    what = "hpccoll.spark.run_on_dataframe"
    context = context_of(df.sparkSession)
    size = ranks_of(what, context, num_proc)
    if repartition:
        df = df.repartition(size)
    elif context is not None and (has := df.rdd.getNumPartitions()) != size:
        raise errors.InvalidArgumentError(f"{what}: {size} ranks, and the DataFrame has {has} partitions")
    settings = (start_timeout, env, nics, executable)
    arguments = (fn, *args), dict(kwargs or {})
    return start_on_rows(what, on_rank, without_vectors(df), arguments, size, settings)


Arguments = tuple[tuple[Any, ...], dict[str, Any]]
Settings = tuple[float | None, Mapping[str, str] | None, str | Sequence[str] | None, str | None]
"""start_timeout, env, nics, executable: see `run`."""


def start_ranks(
    what: str, session: Any, fn: Callable[..., Any], arguments: Arguments, size: int, settings: Settings
) -> list[Any]:
    """Start a number of ranks; see run.

    :param what: the caller's name, for errors
    :param session: that of Spark; None: that of the process
    """
    task = _task(what, (fn, *arguments), *settings)
    context = context_of(session)

    def stage() -> list[Outcome]:
        if context is None:
            return _over_frame(session.range(0, size, 1, size), task)
        numbers = context.parallelize(range(size), size).barrier()
        return list(numbers.mapPartitions(functools.partial(in_barrier, task)).collect())

    return _run(what, size, stage)


def start_on_rows(
    what: str,
    fn: Callable[..., Any],
    frame: Any,
    arguments: Arguments,
    size: int,
    settings: Settings,
    mask: str = "",
) -> list[Any]:
    """Start a rank on each partition of a DataFrame; see run_on_dataframe.

    :param what: the caller's name, for errors
    :param fn: what each rank calls with the arguments; hpccoll.spark.spool.here gives it its rows
    :param frame: has `size` partitions, and columns that Arrow has
    :param mask: a column of booleans: rows where it is true are for validation; "": there is none
    """
    check_version(what, frame.sparkSession)
    task = _task(what, (fn, *arguments), *settings)
    return _run(what, size, lambda: _over_frame(frame, task, mask))


def check_version(what: str, session: Any) -> None:
    """Check that Spark, here and at the other end of Spark Connect, has barrier stages over DataFrames.

    :raises LaunchError: it is older
    """
    for version in (pyspark.__version__, session.version):
        if tuple(int(part) for part in version.split(".")[:2]) < OLDEST:
            raise LaunchError(f"{what} needs Spark {OLDEST[0]}.{OLDEST[1]} or later, and this is {version}")


def ranks_of(what: str, context: Any, num_proc: int | None) -> int:
    """Return the number of ranks, and check that Spark has slots for them.

    :raises InvalidArgumentError: there is no such number
    :raises LaunchError: Spark has fewer slots: the stage would wait for them, by Spark's default for ten minutes
    """
    given = (context.defaultParallelism if context else 0) if num_proc is None else num_proc
    if not isinstance(given, (int, np.integer)) or given < 1:
        raise errors.InvalidArgumentError(f"{what}: num_proc is {num_proc!r}: say how many ranks")
    size = int(given)
    if context is None or context.getConf().get("spark.dynamicAllocation.enabled") == "true":
        return size
    local = context.master.startswith("local") and not context.master.startswith("local-cluster")
    limit = time.monotonic() + (0.0 if local else REGISTERING)
    while (slots := _slots(context, size)) < size:
        if time.monotonic() > limit:
            raise LaunchError(f"{what}: {size} ranks need {size} slots at once, and Spark has {slots}")
        time.sleep(0.2)
    return size


def _slots(context: Any, otherwise: int) -> int:
    with contextlib.suppress(Exception):  # no public interface of Spark has this number
        scala = context._jsc.sc()  # noqa: SLF001
        return int(scala.maxNumConcurrentTasks(scala.resourceProfileManager().defaultResourceProfile()))
    return otherwise


def _task(
    what: str,
    call: tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]],
    start_timeout: float | None,
    env: Mapping[str, str] | None,
    nics: str | Sequence[str] | None,
    executable: str | None,
) -> Task:
    env = checked_variables(f"{what}: env", env)
    interface = nics if isinstance(nics, str) else ",".join(nics or ())
    variables = {"HPCCOLL_START_TIMEOUT": f"{start_timeout:g}"} if start_timeout else {}
    variables |= {"HPCCOLL_INTERFACE": interface} if interface else {}
    return Task(cloudpickle.dumps(call), new_secret(), {**variables, **env}, executable or "")


def _run(what: str, size: int, stage: Callable[[], list[Outcome]]) -> list[Any]:
    try:
        outcomes = stage()
    except Exception as error:
        why = reason(error)
        raise LaunchError(f"{what}: Spark has not run the {size} ranks to their end: {why}") from error
    if len(outcomes) != size:  # Spark's optimizer makes no tasks for a DataFrame that it knows to be empty
        why = "" if outcomes else ": the DataFrame has no rows"
        raise LaunchError(f"{what}: Spark has run {len(outcomes)} tasks for {size} ranks{why}")
    return _results(outcomes)


def context_of(session: Any) -> Any:
    """Return the SparkContext; None with Spark Connect, which has no context."""
    with contextlib.suppress(Exception):  # of a class that depends on Spark's version
        return session.sparkContext if session is not None else SparkContext._active_spark_context  # noqa: SLF001
    return None


def _over_frame(frame: Any, task: Task, mask: str = "") -> list[Outcome]:
    rows = frame.mapInArrow(functools.partial(in_arrow, task, mask), "outcome binary", barrier=True)
    return [pickle.loads(row.outcome) for row in rows.collect()]


def reason(error: Exception) -> str:
    """Spark's error message, in one line, without the stack of its scheduler."""
    before, _, after = str(error).partition("SparkException: ")
    lines = (after or before).partition("\n\tat ")[0].partition("\nDriver stacktrace")[0].splitlines()
    return " ".join(line.strip() for line in lines if line.strip()) or type(error).__name__


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
