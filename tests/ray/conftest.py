# SPDX-License-Identifier: Apache-2.0
"""A real Ray cluster of four nodes on this machine; without Ray the tests are skipped."""

import os
from collections.abc import Iterator
from typing import Any

import pytest

os.environ.setdefault("RAY_TRAIN_V2_ENABLED", "1")
os.environ.setdefault("RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S", "400")
os.environ.setdefault("RAY_agent_register_timeout_ms", "180000")  # a loaded machine
os.environ.setdefault("RAY_raylet_start_wait_time_s", "120")
os.environ.setdefault("RAY_enable_metrics_collection", "false")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

NODES, CPUS = 4, 2


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    """Four nodes, each with two cores and one GPU that does not exist."""
    ray = pytest.importorskip("ray", reason="no Ray: pip install 'hpccoll[ray]'")
    from ray.cluster_utils import Cluster

    node = {"num_cpus": CPUS, "num_gpus": 1, "object_store_memory": 100 << 20}
    made = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    for _ in range(NODES - 1):
        made.add_node(**node)
    ray.init(address=made.address, log_to_driver=True, logging_level="warning")
    made.wait_for_nodes()
    yield made
    ray.shutdown()
    made.shutdown()
