# SPDX-License-Identifier: Apache-2.0
"""The images that `make image` builds in build/images, and their files, unpacked there as Apptainer does it."""

import contextlib
import fcntl
import functools
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "images"
STAND_INS = Path(__file__).with_name("bin")
PACKAGES = {"buildah": "buildah", "mmdebstrap": "mmdebstrap", "podman": "podman", "runc": "runc"}


def lacking(*programs: str) -> str:
    """Say which of these programs, or of the rights of root, this machine lacks, and the remedy; "": none."""
    absent = [name for name in programs if not shutil.which(name)]
    lines = [f"no {', '.join(absent)} on PATH: apt-get install {' '.join(PACKAGES[a] for a in absent)}"] * bool(absent)
    return "; ".join([*lines, *["the stand-in for Apptainer needs root"] * (os.geteuid() != 0)])


@contextlib.contextmanager
def turn() -> Iterator[None]:
    """Wait for other workers, which build or unpack an image."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / "tests.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def build(mpi: str) -> Path:
    """Execute `make image`, in the tests' environment; return the archive."""
    words = ["make", "--no-print-directory", "image", f"MPI={mpi}", f"VENV={sys.prefix}"]
    done = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=900)
    assert done.returncode == 0, done.stdout
    return FOLDER / f"hpccoll-{mpi}.oci.tar"


def blob(archive: Path, digest: str) -> bytes:
    """Read a file of the archive that is named by its hash, and compare the hash."""
    with tarfile.open(archive) as files:
        file = files.extractfile(f"blobs/{digest.replace(':', '/')}")
        assert file
        text = file.read()
    assert f"sha256:{hashlib.sha256(text).hexdigest()}" == digest
    return text


def manifest(archive: Path) -> tuple[str, Any]:
    """Read the digest of the image, and its manifest."""
    with tarfile.open(archive) as files:
        file = files.extractfile("index.json")
        assert file
        (entry,) = json.load(file)["manifests"]
    return entry["digest"], json.loads(blob(archive, entry["digest"]))


def configuration(archive: Path) -> Any:
    """Read what the image says of itself: its user, its variables, its labels."""
    return json.loads(blob(archive, manifest(archive)[1]["config"]["digest"]))["config"]


def revision() -> str:
    """Name the commit of this tree as build.sh does."""
    words = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude", "*"]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


@functools.cache
def image(mpi: str) -> Path:
    """Return the archive of this commit; build it if there is none, or if files differ from the commit."""
    archive, label = FOLDER / f"hpccoll-{mpi}.oci.tar", "org.opencontainers.image.revision"
    with turn():
        known = archive.exists() and configuration(archive)["Labels"][label]
        return archive if known == revision() and "-dirty" not in known else build(mpi)


@functools.cache
def unpacked(mpi: str) -> Path:
    """Unpack an image into a folder, for the stand-in for Apptainer."""
    archive = image(mpi)
    digest, content = manifest(archive)
    folder = FOLDER / "tests" / f"{mpi}-{digest[7:23]}"
    with turn():
        variables = folder / ".singularity.d" / "env" / "10-docker2singularity.sh"  # as Apptainer writes it
        if not variables.exists():
            for older in folder.parent.glob(f"{mpi}-*"):
                shutil.rmtree(older)
            folder.mkdir(parents=True)
            for layer in content["layers"]:
                subprocess.run(["tar", "-xz", "-C", folder], input=blob(archive, layer["digest"]), check=True)
            variables.parent.mkdir(parents=True)
            variables.write_text("".join(f"export {one}\n" for one in configuration(archive)["Env"]))
    return folder
