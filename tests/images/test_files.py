# SPDX-License-Identifier: Apache-2.0
"""What the files of images/ say agrees with each other and with pyproject.toml; without a builder."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from containers import ROOT

CONTAINERFILE = (ROOT / "images" / "Containerfile").read_text()
BUILD = ROOT / "images" / "build.sh"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
INSTRUCTIONS = re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", CONTAINERFILE, flags=re.MULTILINE)).splitlines()
LINES = [line.split(maxsplit=1) for line in INSTRUCTIONS if line]
STAGES = {words.split()[-1] for name, words in LINES if name == "FROM"}
ARGUMENTS = {words.partition("=")[0] for name, words in LINES if name == "ARG"}
COPIED = [word for name, words in LINES if name == "COPY" and "--from" not in words for word in words.split()[:-1]]


def test_the_builder_names_stages_and_arguments_that_there_are() -> None:
    text = BUILD.read_text()
    assert {*re.findall(r"--build-arg (\w+)=", text)} == ARGUMENTS
    assert {"cpu", "cuda"} <= STAGES
    page = (ROOT / "docs" / "containers.md").read_text()
    assert {*re.findall(r"--build-arg (\w+)=", page + CONTAINERFILE)} <= ARGUMENTS
    assert {*re.findall(r"--target (\w+)", page + CONTAINERFILE)} <= STAGES


def test_all_that_is_compiled_is_copied() -> None:
    """What a source distribution has: the packages, the modules, the folders of MANIFEST.in, the metadata's files."""
    there = {word for word in COPIED if "*" not in word}
    assert all((ROOT / word).exists() for word in there)
    grafted = re.findall(r"^graft (\S+)", (ROOT / "MANIFEST.in").read_text(), re.MULTILINE)
    modules = [f"{name}.py" for name in PROJECT["tool"]["setuptools"]["py-modules"]]
    facts = PROJECT["project"]
    assert {
        "hpccoll",
        "setup.py",
        "pyproject.toml",
        *modules,
        *grafted,
        facts["readme"],
        *facts["license-files"],
    } <= there


def test_python_and_the_extras_are_those_of_the_project() -> None:
    release, python = re.findall(r"^RELEASE=(\w+) PYTHON=([\d.]+)", BUILD.read_text(), re.MULTILINE)[0]
    assert f"debian:{release}-slim" in CONTAINERFILE
    assert f"Programming Language :: Python :: {python}" in PROJECT["project"]["classifiers"]
    extras = PROJECT["project"]["optional-dependencies"]
    assert {"demo", "cuda12", "cuda13"} <= set(extras)
    assert not any("torch" in requirement for requirement in extras["demo"])
    assert f'image.source="{PROJECT["project"]["urls"]["Source"]}"' in CONTAINERFILE


def test_the_definition_for_apptainer_takes_what_is_built() -> None:
    definition = (ROOT / "images" / "hpccoll.def").read_text()
    assert "\nFrom: build/images/hpccoll-openmpi.oci.tar\n" in definition
    assert "build/images/hpccoll-openmpi.oci.tar" in (ROOT / "Makefile").read_text()


def test_a_missing_builder_is_named(tmp_path: Path) -> None:
    (tmp_path / "dirname").symlink_to("/usr/bin/dirname")
    done = subprocess.run(
        ["/bin/bash", BUILD], env={"PATH": str(tmp_path)}, capture_output=True, text=True, timeout=20, check=False
    )
    assert done.returncode == 1
    assert done.stderr == ("make image: no buildah mmdebstrap git on PATH: apt-get install buildah mmdebstrap git\n")


@pytest.mark.parametrize(
    "script", [BUILD, *sorted((ROOT / "tests" / "images" / "bin").iterdir())], ids=lambda p: p.name
)
def test_scripts_are_bash(script: Path) -> None:
    assert subprocess.run(["bash", "-n", script], timeout=20, check=False).returncode == 0
