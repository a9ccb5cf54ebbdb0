# SPDX-License-Identifier: Apache-2.0
"""The report of a study: its numbers, its files, and what it refuses. The results were not measured."""

import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from made_studies import results, step

from hpccoll.tools.bench.results import Results, ResultsError
from hpccoll.tools.study import curves, page, tables


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return page.write(results(), "a study", tmp_path_factory.mktemp("report"), ["2 of 9 runs are missing"])


def test_speedup_and_efficiency() -> None:
    weak, strong = Results([{}]), Results([{}])
    for nodes, seconds in ((1, 0.2), (4, 0.25)):
        case = step("", nodes, seconds)
        weak.cases[case.key] = case
    for nodes, seconds in ((1, 0.2), (4, 0.1)):
        case = step("", nodes, seconds, "strong")
        strong.cases[case.key] = case
    (one,), (two,) = curves.curves(weak), curves.curves(strong)
    assert one.points[0].efficiency.middle == one.points[0].speedup.middle == 1
    assert one.points[1].efficiency.middle == pytest.approx(0.8, rel=0.02)
    assert one.points[1].speedup.middle == pytest.approx(3.2, rel=0.02)
    assert two.points[1].speedup.middle == pytest.approx(2, rel=0.02)
    assert two.points[1].efficiency.middle == pytest.approx(0.5, rel=0.02)
    for point in (one.points[1], two.points[1]):
        assert point.efficiency.low < point.efficiency.middle < point.efficiency.high
        assert sum(point.parts.values()) == pytest.approx(point.seconds.middle, rel=0.01)
    assert one.points[1].items == pytest.approx(4 * 256 / 0.25, rel=0.02)


def test_a_launch_that_serves_both_kinds_of_scaling_has_measured_its_samples_once() -> None:
    found = results()
    found.cases.clear()
    weak, more = step("", 1, 0.2), step("", 4, 0.1, "strong", count=10)
    both = replace(weak, key=replace(weak.key, what="training, strong scaling"))
    found.cases |= {case.key: case for case in (weak, both, more)}
    assert page._summary(found).startswith("3 launches on 1, 4 nodes, 3 cases, 90 samples; ")  # 3 * 20, and 3 * 10


@pytest.mark.slow
def test_the_page_needs_nothing_else(written: Path) -> None:
    text = written.read_text()
    assert not re.findall(r'(?:src|href)="(?!figures/)[^"#]', text) and "<script" not in text and "@import" not in text
    assert text.count("<svg") == text.count('<div role="img" aria-label="') == 2 * 4 + 2 + 3
    for said in (
        "h1 was loaded",
        "2 of 9 runs are missing",
        "training, strong scaling",
        "were calculated",
        "control plane of virtual ranks, 16 tensors",
        "start of very many ranks",
        "Bars: range of launches; dots: launches. Each point: 3 launches, 60 samples.",
    ):
        assert said in text
    assert page._modelled([], []) == ""
    ElementTree.fromstring(text[text.index("<svg") : text.index("</svg>") + 6])


def beyond() -> Results:
    """Steps of a trace that the model knows, and the same of another library."""
    found = Results([{"hpccoll": "1.0", "date": "2026-11-22", "knobs": {}}] * 3)
    for nodes, seconds in ((1, 0.101), (2, 0.112), (4, 0.118)):
        for library in ("hpccoll", "gloo"):
            case = step("", nodes, seconds)
            key = replace(case.key, what="training even:1M:20, weak scaling", library=library, bytes=4_000_000)
            found.cases[key] = replace(case, key=key)
    return found


@pytest.mark.slow
def test_only_what_the_model_knows_continues_to_more_nodes() -> None:
    ours, gloo = curves.curves(beyond())
    assert gloo.beyond is None and ours.beyond and ours.beyond.nodes == (4, 8, 16, 32, 64)
    assert all(one.low < one.middle < one.high for one in (*ours.beyond.seconds, *ours.beyond.efficiency))
    assert ours.beyond.seconds[0].middle == pytest.approx(ours.points[-1].seconds.middle, rel=0.1)


@pytest.mark.slow
def test_what_was_not_measured_is_drawn_differently(tmp_path: Path) -> None:
    text = page.write(beyond(), "beyond", tmp_path).read_text()
    assert "predictions for more nodes than were measured" in text and "nothing was modelled" not in text


@pytest.mark.slow
def test_figures_and_tables_for_print(written: Path) -> None:
    files = {file.name for file in (written.parent / "figures").iterdir()}
    assert len(files) == 13 and "training-weak-scaling-efficiency.pdf" in files
    table = (written.parent / "tables" / "training-weak-scaling.tex").read_text()
    assert "\\toprule" in table and "range of launches" in table and table.count("\\\\\n") == 5


def test_latex_escapes() -> None:
    assert tables._escaped("50 % of a_b & µ") == "50 \\% of a\\_b \\& $\\mu$"


def test_too_few_samples_are_refused(tmp_path: Path) -> None:
    few = results()
    key, case = next((key, case) for key, case in few.cases.items() if key.kind == "step")
    few.cases[key] = replace(case, samples=case.samples[:5], launch=case.launch[:5], parts={})
    with pytest.raises(ResultsError, match="5 samples, and a report needs 6 of each point"):
        page.write(few, "few", tmp_path)


@pytest.mark.slow
def test_figures_are_one_column_wide_and_nothing_is_cut(written: Path, needs: Callable[..., None]) -> None:
    """Each PDF has the width of a column, and a white border: no label reaches over the edge."""
    import numpy as np
    from matplotlib.image import imread

    needs("pdftoppm")
    for pdf in sorted((written.parent / "figures").iterdir()):
        subprocess.run(["pdftoppm", "-png", "-r", "150", pdf, pdf.with_suffix("")], check=True, timeout=60)
        (image,) = pdf.parent.glob(f"{pdf.stem}-*.png")
        pixels = np.asarray(imread(image))[..., :3]
        assert abs(pixels.shape[1] / 150 - 3.3) < 0.05, pdf
        edges = (pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1])
        assert all((edge == 1).all() for edge in edges) and (pixels < 0.5).any(), pdf
        image.unlink()


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_the_page_in_a_browser(written: Path, needs: Callable[..., None], tmp_path: Path) -> None:
    """A real browser draws the page, also in the width of a telephone, without anything wider than the window."""
    needs("chromium")
    program = shutil.which("chromium")
    assert program
    for width in (1200, 420):
        page_file = tmp_path / f"{width}.html"
        probe = "<script>document.title = document.documentElement.scrollWidth + ' of ' + innerWidth</script>"
        page_file.write_text(written.read_text().replace("</body>", f"{probe}</body>"))
        command = [program, "--headless", "--no-sandbox", "--disable-gpu", f"--window-size={width},2000"]
        done = subprocess.run(
            [*command, f"--user-data-dir={tmp_path}/profile", "--dump-dom", f"file://{page_file}"],
            capture_output=True, text=True, timeout=200, check=True,
        )  # fmt: skip
        found = re.search(r"<title>(\d+) of (\d+)</title>", done.stdout)
        assert found and int(found[1]) <= int(found[2]), found and found[0]
