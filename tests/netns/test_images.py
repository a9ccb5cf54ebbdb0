# SPDX-License-Identifier: Apache-2.0
"""Ranks on two hosts in an image, with the host's MPI in place of the image's (cluster.sh; needs root)."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import containers
import pytest
from mpis import environment
from namespaces import PROGRAMS, cluster, hosts_up

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
SITES = {"mpich>=5,<6": ("MPICH Version: 5", "libmpi.so.12"), "openmpi>=5,<6": ("Open MPI v5", "libmpi.so.40")}
STARTED = {"mpich": ("mpiexec", "-n", "4", "-hosts", "h1:2,h2:2"), "openmpi": ("mpirun", "-np", "4", "-H", "h1:2,h2:2")}
SUMS = """
import platform, re, numpy, hpccoll
from mpi4py import MPI
hpccoll.init()
p, r = hpccoll.size(), hpccoll.rank()
x = numpy.arange(500_000, dtype=numpy.float32) % 1000 + r
assert (hpccoll.allreduce(x) == p * (x - r) + p * (p - 1) // 2).all()
print(f"<rank {r} of {p} on {platform.node()}, {re.sub(' +', ' ', MPI.Get_library_version())[:16]}", flush=True)
"""


@pytest.fixture(scope="module", autouse=True)
def hosts(uncounted: Callable[[], AbstractContextManager[None]], needs: Callable[..., None]) -> Iterator[None]:
    needs(*PROGRAMS)
    if why := containers.lacking("buildah", "mmdebstrap"):
        pytest.skip(why)
    with hosts_up(2, uncounted):
        yield


@pytest.mark.parametrize("wheel", SITES)
@pytest.mark.parametrize("mpi", ["openmpi", "mpich"])
def test_the_hosts_mpi_in_the_image(mpi: str, wheel: str) -> None:
    """The MPI of a site is in the place of the image's; one of the other family is named."""
    site, (version, library) = environment(wheel).parents[1], SITES[wheel]
    program, *options = STARTED[wheel.partition(">")[0]]
    inside = [containers.STAND_INS / "apptainer", "exec", "--bind", site, "--env", f"LD_LIBRARY_PATH={site}/lib"]
    if not wheel.startswith(mpi):
        inside += ["--env", f"MPI4PY_LIBMPI={site}/lib/{library}"]
    exports = [word for line in cluster("env").stdout.splitlines() for word in line.split() if "=" in word]
    done = cluster(
        "exec", "h1", "env", *exports, site / "bin" / program, *options,
        *inside, containers.unpacked(mpi), "python", "-c", SUMS, timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert "4 ranks on 2 nodes (2+2)" in done.stdout, done.stdout
    for rank, host in enumerate(("h1", "h1", "h2", "h2")):
        assert f"<rank {rank} of 4 on {host}, {version}" in done.stdout, done.stdout
