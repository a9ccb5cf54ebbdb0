# SPDX-License-Identifier: Apache-2.0
"""Files that the documentation names exist, and so do the pages and headings that it links to."""

import re
from pathlib import Path

import pytest
from blocks import ROOT

FOLDERS = [page for folder in ("ext", "hpccoll", "tests") for page in sorted((ROOT / folder).rglob("README.md"))]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *FOLDERS, *sorted((ROOT / "docs").rglob("*.md"))]
WITH_LINKS = [ROOT / name for name in ("CHANGELOG.md", "SECURITY.md", "benchmarks/README.md")]
NAMED = re.compile(r"`((?:ext|hpccoll|tests|docs|benchmarks|examples|slurm)/[\w./*-]+)`")
SHORT = re.compile(r"`([\w.-]+\.(?:c|h|cu|py|pxi|pyx|toml|txt|ptx|inc))`")
IDENTIFIER = re.compile(r"`((?:hc|HC)_\w+)`")
ELSEWHERE = {"cuda.h", "nccl.h", "first.py", "first.toml", "site.toml"}  # of CUDA; what a reader of a page makes
FUNCTION = re.compile(r"`(ext/[\w/]+\.(?:c|h|pxi))`: `(\w+)`")
FENCE = re.compile(r"```.*?```", re.DOTALL)
INDENTED = re.compile(r"(?:\A|\n)\n {4}\S.*(?:\n {4}.*)*")
STAGES = ["enqueue", "negotiate", "fuse", "reduce", "complete"]
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(#[^)\s]+)?\)")
HISTORY = ROOT / "docs" / "decisions"  # a decision names the files of its day


def slug(heading: str) -> str:
    words = re.sub(r"[^\w\s-]", "", heading.replace("`", "")).strip().lower()
    return "#" + re.sub(r"[\s-]+", "-", words)


def anchors(page: Path) -> set[str]:
    return {slug(heading) for heading in re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)}


@pytest.mark.parametrize("page", [p for p in PAGES if p.parent != HISTORY], ids=lambda p: p.name)
def test_named_files_exist(page: Path) -> None:
    named = {match[1].rstrip("/.") for match in NAMED.finditer(page.read_text())}
    assert not [name for name in sorted(named) if not list(ROOT.glob(name)) and "NAME" not in name]


@pytest.mark.parametrize("page", [p for p in PAGES if p.parent != HISTORY], ids=lambda p: p.name)
def test_short_names_and_identifiers_exist(page: Path) -> None:
    files = [
        file for folder in ("ext", "hpccoll", "tests", "benchmarks", "examples") for file in (ROOT / folder).rglob("*")
    ]
    known = {file.name for file in [*files, *ROOT.iterdir()]} | ELSEWHERE
    assert not {match[1] for match in SHORT.finditer(page.read_text())} - known
    code = "".join(file.read_text() for file in files if file.suffix in (".c", ".h"))
    assert not [match[1] for match in IDENTIFIER.finditer(page.read_text()) if match[1] not in code]


@pytest.mark.parametrize("page", [p for p in PAGES if p.parent != HISTORY], ids=lambda p: p.name)
def test_a_function_is_defined_in_the_file_that_is_named_with_it(page: Path) -> None:
    for file, function in FUNCTION.findall(page.read_text()):
        defined = re.search(
            rf"^(?!\s*(?:return|else)\b)[^\n;=]*\b{function}\([^;]*?[{{:]$", (ROOT / file).read_text(), re.MULTILINE
        )
        assert defined, f"{page.name}: {function} is not defined in {file}"


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "docs" / "architecture.md"], ids=lambda p: p.name)
def test_the_picture_of_the_pipeline_has_a_line_per_stage(page: Path) -> None:
    fences = [block for block in FENCE.findall(page.read_text()) if block.startswith("```text\nyour array\n")]
    assert len(fences) == 1
    lines = [[word for word in STAGES if re.search(rf"\b{word}\b", line)] for line in fences[0].splitlines()]
    assert [words for words in lines if words] == [[word] for word in STAGES]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_pictures_are_fenced(page: Path) -> None:
    """A tool that fills paragraphs leaves fences alone, and joins the lines of a picture that is only indented."""
    lines = FENCE.sub("", page.read_text())
    assert not [
        picture
        for picture in INDENTED.findall(lines)
        if re.search(r"[-<]{2,}|->|<-|\.{4,}|^ +[|v] ", picture, re.MULTILINE)
    ]


@pytest.mark.parametrize("page", [*PAGES, *WITH_LINKS], ids=lambda p: p.name)
def test_the_head_of_a_table_is_followed_by_a_row(page: Path) -> None:
    """A blank line between them makes text of the rows."""
    lines = FENCE.sub("", page.read_text()).splitlines()
    heads = [i for i, line in enumerate(lines) if re.fullmatch(r"\|(?: ?:?-+:? ?\|)+", line)]
    assert not [lines[i - 1] for i in heads if not lines[i - 1 : i + 2][-1].startswith("|")]


@pytest.mark.parametrize("page", [*PAGES, *WITH_LINKS], ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target, anchor in LINK.findall(page.read_text()):
        linked = (page.parent / target).resolve() if target else page
        assert linked.exists(), f"{page.name}: {target}"
        generated = linked.name.startswith("api")  # its headings are drawn from docstrings
        assert not anchor or generated or anchor in anchors(linked), f"{page.name}: {target}{anchor}"
