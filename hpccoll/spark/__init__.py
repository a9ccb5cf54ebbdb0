# SPDX-License-Identifier: Apache-2.0
"""Spark starts the ranks: Horovod's `run` on Spark's barrier mode.

>>> results = hpccoll.spark.run(train, args=(0.1,), num_proc=4)

Each task of a barrier stage starts one rank. The tasks exchange the address of a store by Spark's `allGather`. The
first task serves the store, and a secret from the driver authenticates its records; no MPI is needed.

    driver.py       run, run_on_dataframe: a barrier stage with a task per rank
    task.py         the task: the agent of one rank
    spool.py        the task's rows in files, which its rank maps into memory
    columns.py      columns of a DataFrame that Arrow and NumPy have
    elastic_*.py    run_elastic
    estimators      what the estimators share; torch, lightning, keras: those of a framework
    common          SparkBackend and Store, under Horovod's names
"""

from typing import Any

__all__ = ["run", "run_elastic", "run_on_dataframe"]


def __getattr__(name: str) -> Any:
    """Import the names that need Spark at first use, so that hpccoll.spark.torch can raise its error without Spark."""
    if name not in __all__:
        raise AttributeError(f"module 'hpccoll.spark' has no attribute {name!r}")
    try:
        from hpccoll.spark.driver import run, run_on_dataframe
        from hpccoll.spark.elastic_driver import run_elastic
    except ImportError as error:
        raise ImportError(f"hpccoll.spark needs Spark: pip install 'hpccoll[spark]' ({error})") from error
    return {"run": run, "run_elastic": run_elastic, "run_on_dataframe": run_on_dataframe}[name]
