# SPDX-License-Identifier: Apache-2.0
"""What the tests need from the system, hidden: each test that needs it is skipped with the remedy, on CI it fails."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LISTED = dict(line.split() for line in (ROOT / "tests/packages").read_text().splitlines() if not line.startswith("#"))
NEEDED_TO_BUILD = ("gcc", "cc", "make")
HIDDEN = {
    "tests/netns/test_hosts.py": ("ip", "sshd", "ssh"),
    "tests/tools/doctor/test_hosts.py": ("ip", "sshd", "ssh", "iperf3"),
    "tests/slurm/test_cluster.py": ("slurmctld", "slurmd", "srun", "munged"),
    "tests/architecture/test_warnings.py": ("clang", "aarch64-linux-gnu-gcc", "powerpc64le-linux-gnu-gcc"),
    "tests/ports/test_other_processors.py": ("aarch64-linux-gnu-gcc", "qemu-aarch64-static"),
}
"""Files whose tests need these programs before all else."""


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A PATH without any program of tests/packages but what builds hpccoll."""
    folder = tmp_path_factory.mktemp("bin")
    hidden = LISTED.keys() - set(NEEDED_TO_BUILD)
    for place in map(Path, os.environ["PATH"].split(":")):
        for program in place.iterdir() if place.is_dir() else ():
            if program.name not in hidden and not (folder / program.name).is_symlink():
                (folder / program.name).symlink_to(program)
    return str(folder)


def outcome(path: str, *tests: str, **variables: str) -> tuple[int, str]:
    """The exit status and the report of these tests, as a user or (CI=1) as CI runs them."""
    kept = {name: value for name, value in os.environ.items() if name != "CI" and not name.startswith("PYTEST_")}
    command = [sys.executable, "-P", "-m", "pytest", "-q", "--color=no", "-pno:cacheprovider", *tests]
    done = subprocess.run(
        command, env={**kept, "PATH": path, "COLUMNS": "1000", **variables}, cwd=ROOT,
        capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def test_a_user_is_told_what_to_install(bare: str) -> None:
    status, report = outcome(bare, *HIDDEN, "--deselect=tests/architecture/test_warnings.py::test_no_warnings[gcc]")
    assert status == 0, report
    for file, programs in HIDDEN.items():
        reasons = "\n".join(line for line in report.splitlines() if line.startswith("SKIPPED") and file in line)
        for program in programs:
            assert re.search(rf"no [\w, -]*\b{program}\b.* on PATH: apt-get install .*{LISTED[program]}", reasons), (
                f"{file} without {program}: {reasons or report}"
            )


@pytest.mark.parametrize(
    ("test", "program"),
    [("test_a_firewall", "nft"), ("test_large_packets_that_vanish", "ethtool")],
)
def test_what_one_test_needs(test: str, program: str) -> None:
    text = (ROOT / "tests/tools/doctor/test_hosts.py").read_text()
    body = text.split(f"def {test}(")[1].split("\ndef ")[0]
    assert f'needs("{program}")' in body


def test_on_ci_it_is_a_failure(bare: str) -> None:
    status, report = outcome(bare, "tests/architecture/test_warnings.py", "-kclang", CI="1")
    assert status == 1, report
    assert "skipped, which CI does not allow" in report
    assert "no clang on PATH: apt-get install clang" in report


def test_rights_that_are_missing() -> None:
    """As a user, or as root in a container that may not make namespaces."""
    program = (
        "import importlib.util as u\n"
        "spec = u.spec_from_file_location('tests_conftest', 'tests/conftest.py')\n"
        "module = u.module_from_spec(spec)\n"
        "spec.loader.exec_module(module)\n"
        "module.os.geteuid = lambda: 1000\n"
        "print(module.lacking('root'))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "hosts of their own need root, and in a container --privileged\n"


def test_one_list() -> None:
    """CI and the README's line install what tests/packages lists."""
    line = "awk '!/^#/ { print $2 }' tests/packages"
    assert f"$({line})" in (ROOT / "README.md").read_text()
    assert f"$({line} | sort -u)" in (ROOT / ".ci/run").read_text()
    installed = subprocess.run(line, shell=True, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert set(installed) == set(LISTED.values())
