# SPDX-License-Identifier: Apache-2.0
"""`make image` gives the same image twice, small and with a list of its parts, and a container runs the demo in it."""

import hashlib
import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import containers
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # a build takes four minutes
LARGEST = 250e6
DEMO = "hpccoll run -np 4 --nodes 2 --timeout 300 python examples/digits/train.py --verify --folder /tmp"


@pytest.fixture(scope="module", autouse=True)
def builder() -> None:
    if why := containers.lacking("buildah", "mmdebstrap"):
        pytest.skip(why)


@pytest.fixture(scope="module", params=["openmpi", "mpich"])
def archive(request: pytest.FixtureRequest) -> Path:
    return containers.image(request.param)


@pytest.fixture(scope="module")
def run_in(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """The words before a command in a container of the image, with the examples of this tree."""
    if why := containers.lacking("podman", "runc"):
        pytest.skip(why)
    store = tmp_path_factory.mktemp("store")
    podman = ["podman", "--root", str(store / "root"), "--runroot", str(store / "run"), "--runtime", "runc"]
    loaded = subprocess.run([*podman, "load", "-q", "-i", archive], capture_output=True, text=True, check=True).stdout
    limits = [
        "--ulimit=nofile=1024:1024",
        "--ulimit=nproc=4096:4096",
    ]  # podman's own can be refused
    examples = f"--volume={containers.ROOT}/examples:/examples:ro"
    yield [*podman, "run", "--rm", "--network=host", "--workdir=/", examples, *limits, "IMAGE", loaded.split()[-1]]
    subprocess.run([*podman, "rmi", "--all", "--force"], check=True, capture_output=True)


def contained(words: list[str], *command: str, options: tuple[str, ...] = ()) -> str:
    """Run a command in a new container; return its output."""
    at = words.index("IMAGE")
    done = subprocess.run(
        [*words[:at], *options, *words[at + 1 :], *command],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_the_archive_is_small(archive: Path) -> None:
    assert archive.stat().st_size <= LARGEST


def test_a_second_build_is_equal() -> None:
    """The archive, and so the digest of the image, and the list of its parts."""

    def made(archive: Path) -> list[str]:
        files = (archive, archive.with_name("hpccoll-openmpi.cdx.json"))
        return [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]

    first = made(containers.image("openmpi"))
    with containers.turn():
        assert made(containers.build("openmpi")) == first


def test_what_the_image_says_of_itself(archive: Path) -> None:
    facts = containers.configuration(archive)
    assert facts["User"] not in ("", "0", "root")
    assert "Entrypoint" not in facts  # srun and pyxis start a command, not the arguments of one
    labels = {name.rpartition(".")[2]: text for name, text in facts["Labels"].items() if "opencontainers" in name}
    assert labels["title"] == "hpccoll" and labels["licenses"] == "Apache-2.0"
    assert labels["revision"] == containers.revision()
    assert f'version = "{labels["version"]}"' in (containers.ROOT / "pyproject.toml").read_text()


def test_the_parts_are_listed(archive: Path) -> None:
    """All packages that dpkg and pip know in the image, and no other; the list names the image."""
    listed = json.loads(archive.with_name(archive.name.replace("oci.tar", "cdx.json")).read_text())
    assert listed["metadata"]["component"]["description"] == f"OCI image {containers.manifest(archive)[0]}"
    links = [part.get("purl", "") for part in listed["components"]]
    root = containers.unpacked(archive.name.split("-")[1].split(".")[0])
    status = (root / "var" / "lib" / "dpkg" / "status").read_text()
    installed = {part.split("\n")[0].split()[1] for part in status.split("\n\n") if "\nStatus: install ok inst" in part}
    debian = [unquote(link) for link in links if "pkg:deb" in link and "arch=source" not in link]
    assert {re.split("[/@]", link)[2] for link in debian} == installed
    packages = {
        file.name.split("-")[0].lower() for file in root.glob("opt/hpccoll/lib/python*/site-packages/*.dist-info")
    }
    python = {re.split("[/@]", link)[1].replace("-", "_") for link in links if "pkg:pypi" in link}
    assert python | {"hpccoll"} == packages
    assert {"numpy", "mpi4py"} <= packages and "torch" not in packages


def test_nothing_tells_where_it_was_built(archive: Path) -> None:
    root = containers.unpacked(archive.name.split("-")[1].split(".")[0])
    files = [file for folder in ("etc", "opt/hpccoll", "home", "root", "var") for file in (root / folder).rglob("*")]
    texts = [file for file in files if file.is_file() and not file.is_symlink()]
    assert len(texts) > 1000
    assert not [file for file in texts if bytes(containers.ROOT) in file.read_bytes()]
    for name in ("hostname", "resolv.conf"):  # of the builder, unless something removes them
        file = root / "etc" / name
        assert not file.exists() or file.read_text() == ""


def test_the_demo_runs_as_a_user(run_in: list[str]) -> None:
    output = contained(run_in, *DEMO.split())
    assert "ranks 4, nodes 2: 168 steps" in output
    assert "distance of the weights" in output


@pytest.mark.parametrize("options", [("--user=4321:4321",), ("--read-only",), ()])
def test_any_user_and_a_read_only_image(run_in: list[str], options: tuple[str, ...]) -> None:
    program = "import hpccoll, os; hpccoll.init(); print(f'<{os.getuid()} {int(hpccoll.allreduce(1))}>', flush=True)"
    output = contained(run_in, "hpccoll", "run", "-np", "2", "python", "-c", program, options=options)
    assert output.count("<4321 2>" if options[:1] == ("--user=4321:4321",) else "<1000 2>") == 2, output


def test_without_a_command_it_says_what_is_there(run_in: list[str]) -> None:
    output = contained(run_in)
    assert re.search(r"library: (Open MPI v4|MPICH Version:\s+4)", output)
    assert "hpccoll: 0.1.0" in output
    assert os.fspath(containers.ROOT) not in output
