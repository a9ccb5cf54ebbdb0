# SPDX-License-Identifier: Apache-2.0
"""A real Spark cluster on this machine: a master and executors in processes of their own; skipped without Spark."""

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # spark_tables.py

EXECUTORS, SLOTS = 2, 2


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    pyspark = pytest.importorskip("pyspark.sql", reason="no Spark: pip install 'hpccoll[spark]'")
    if not shutil.which("java"):
        pytest.skip("no java on PATH: apt-get install default-jre-headless")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_DIRS"] = str(tmp_path_factory.mktemp("spark"))
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.executor.memory": "512m",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
    }
    builder = pyspark.SparkSession.builder.master(f"local-cluster[{EXECUTORS},{SLOTS},1024]").appName("hpccoll")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture
def by_value(request: pytest.FixtureRequest, spark: Any) -> Iterator[Any]:
    """The test's own functions are not installed on executors: its file travels by value. Returns the session."""
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[request.module.__name__])
    yield spark
    cloudpickle.unregister_pickle_by_value(sys.modules[request.module.__name__])
