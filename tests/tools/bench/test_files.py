# SPDX-License-Identifier: Apache-2.0
"""Files of results: written, read, shown, merged and compared; what does not fit together is refused."""

import itertools
import json
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
from made import results

from hpccoll.__main__ import main
from hpccoll.tools.bench import compare, files, start
from hpccoll.tools.bench.results import ResultsError, merged, warnings


def test_a_file_holds_everything(tmp_path: Path) -> None:
    before = results()
    made = next(iter(before.cases.values())).parts
    made |= {name: np.full(120, float(i)) for i, name in enumerate(("compute", "I/O", "I/O/read", "/", "50%", "a b"))}
    files.write(tmp_path / "deep" / "a.h5", before)
    after = files.read(tmp_path / "deep" / "a.h5")
    assert after.launches == before.launches and list(after.cases) == list(before.cases)
    for key, case in before.cases.items():
        found = after.cases[key]
        assert (found.samples == case.samples).all() and (found.launch == case.launch).all()
        assert found.facts == case.facts and list(found.parts) == list(case.parts)
        assert all((found.parts[name] == values).all() for name, values in case.parts.items())
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["a.h5"]
    with h5py.File(tmp_path / "deep" / "a.h5") as file:  # as docs/measure.md describes it
        assert file["cases/0000"].attrs["what"] == "allreduce" and file["cases/0000/samples"].attrs["unit"] == "s"
        assert json.loads(file["launches/0000"].attrs["facts"])["command"] == "made"


def test_what_is_no_file_of_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text.h5").write_text("x")
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file.attrs["format"] = "else"
    for name, said in (("text.h5", "text.h5: "), ("other.h5", "not a file of"), ("none.h5", "none.h5: ")):
        assert main(["bench", "show", str(tmp_path / name)]) == 1
        assert said in capsys.readouterr().err


def damage(file: h5py.File, what: str) -> None:
    """One kind of damage to the first case."""
    case = file["cases/0000"]
    samples = case["samples"][...]
    if what == "no samples":
        del case["samples"]
    elif what == "facts":
        case.attrs["facts"] = "{"
    elif what == "no library":
        del case.attrs["library"]
    elif what in ("launches", "cases", "cases/0000/parts"):
        file[what]["unreadable"] = h5py.SoftLink("/nowhere")
    elif what == "no launches":
        del file["launches"]
    else:
        samples[0] = {"nan": np.nan, "negative": -1.0}.get(what, samples[0])
        name = "launch" if what == "few launches" else "samples"
        values = {"few launches": case["launch"][:3], "empty": samples[:0]}.get(what, samples)
        del case[name]
        case.create_dataset(name, data=values)


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("no samples", "a part of it is missing"),
        ("facts", "a part of it is missing"),
        ("no library", "a part of it is missing"),
        ("launches", "a part of it is missing"),
        ("cases", "a part of it is missing"),
        ("cases/0000/parts", "a part of it is missing"),
        ("no launches", "allreduce by hpccoll: a sample is of launch 5, and there are 0"),
        ("few launches", "allreduce by hpccoll: 120 samples, and not as many launches"),
        ("empty", "allreduce by hpccoll: there are no samples"),
        ("nan", "allreduce by hpccoll: a sample is not a time"),
        ("negative", "allreduce by hpccoll: a sample is not a time"),
    ],
)
def test_a_damaged_file_is_refused_in_a_line(
    what: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files.write(tmp_path / "a.h5", results())
    with h5py.File(tmp_path / "a.h5", "a") as file:
        damage(file, what)
    assert main(["bench", "show", str(tmp_path / "a.h5")]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert f"a.h5: {said}" in line


def test_merge_puts_launches_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed in (1, 2):
        files.write(tmp_path / f"{seed}.h5", results(seed=seed, launches=2))
    out = tmp_path / "both.h5"
    assert main(["bench", "merge", str(tmp_path / "1.h5"), str(tmp_path / "2.h5"), "--out", str(out)]) == 0
    both = files.read(out)
    assert len(both.launches) == 4
    assert all(len(case.samples) == 80 and set(case.launch) == {0, 1, 2, 3} for case in both.cases.values())
    assert "80" in capsys.readouterr().out


def test_mixed_versions_are_refused() -> None:
    with pytest.raises(ResultsError, match=r"different versions \(hpccoll: 1.0, 2.0"):
        merged([results(), results(version="2.0")])
    assert len(merged([results(), results(version="2.0")], mixed=True).launches) == 12


def test_a_change_while_it_is_measured_is_a_warning(tmp_path: Path) -> None:
    """The results of minutes are not thrown away because a page of the checkout was edited."""
    for number, revision in enumerate(("abc", "abc-dirty")):
        made = results(seed=number, launches=1)
        made.launches[0]["revision"] = revision
        files.write(tmp_path / f"{number}-0.h5", made)
    found = start.measured([], start.Launch(ranks=2, launches=2), (), tmp_path)
    assert len(found.launches) == 2
    assert [text for text in warnings(found) if "revision: abc, abc-dirty" in text]
    made.launches[0]["build"] = "of another core"
    files.write(tmp_path / "1-0.h5", made)
    with pytest.raises(ResultsError, match="build: "):
        start.measured([], start.Launch(ranks=2, launches=2), (), tmp_path)


def test_another_mpi_is_refused() -> None:
    """Below hpccoll; a peer on an MPI of its own is another library."""
    several = [results(seed=seed) for seed in (1, 2)]
    for made, mpi in zip(several, ("Open MPI v5.0.11, package: A", "MPICH Version: 5.0"), strict=True):
        for launch in made.launches:
            launch["packages"] = {"MPI": mpi}
    with pytest.raises(ResultsError, match=r"different versions \(MPI: MPICH Version: 5.0, Open MPI v5.0.11\)"):
        merged(several)
    several[0].launches[0]["packages"] = {"MPI": "Open MPI v5.0.11, package: B"}
    assert len(merged([several[0]]).launches) == 6
    for key in [key for key in several[1].cases if key.library == "hpccoll"]:
        del several[1].cases[key]
    assert len(merged(several).launches) == 12


def test_a_launch_counts_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed in (1, 2):
        files.write(tmp_path / f"{seed}.h5", results(seed=seed, launches=2))
    names = [str(tmp_path / name) for name in ("1.h5", "2.h5", "both.h5")]
    assert main(["bench", "merge", *names[:2], "--out", names[2], "--quiet"]) == 0
    for twice in ([names[0], names[0]], [names[2], names[1], "--mixed"]):
        assert main(["bench", "merge", *twice, "--out", str(tmp_path / "c.h5")]) == 1
        assert "a launch is there twice" in capsys.readouterr().err
    assert not (tmp_path / "c.h5").exists()


@pytest.mark.slow
def test_compare_sees_what_is_slower(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = {name: str(tmp_path / f"{name}.h5") for name in ("first", "same", "slower")}
    for name, made in (("first", results()), ("same", results(seed=8)), ("slower", results(1.2, seed=9))):
        files.write(Path(names[name]), made)
    assert main(["bench", "compare", names["first"], names["same"]]) == 0
    assert capsys.readouterr().out.count("no difference seen") == 4
    assert main(["bench", "compare", names["first"], names["slower"]]) == 3
    shown = capsys.readouterr().out
    assert shown.count("  slower") == 4 and "medians of launches" in shown and "1.2" in shown
    assert main(["bench", "compare", names["slower"], names["first"]]) == 0
    assert capsys.readouterr().out.count("  faster") == 4


def test_few_launches_are_compared_without_a_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two runs of one build that differ: their samples do, by far, and nobody knows why."""
    names = [str(tmp_path / name) for name in ("a.h5", "b.h5")]
    for name, made in zip(names, (results(launches=1), results(1.5, seed=2, launches=2)), strict=True):
        files.write(Path(name), made)
    assert main(["bench", "compare", *names]) == 4
    out = capsys.readouterr().out
    assert out.count("  no verdict: 5 and 4 launches are missing") == 4 and "slower" not in out
    assert out.count(" 1+2 ") == 4 and out.count("1.5") >= 4
    assert "a verdict on 4 cases needs 6 launches in each file" in out


def test_cases_that_only_one_file_has_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They were left out without a word, and a gate passed that compared half of what it had compared before."""
    names, several = [str(tmp_path / name) for name in ("a.h5", "b.h5")], [results(), results(seed=2)]
    del several[1].cases[next(key for key in several[1].cases if key.bytes == 1024)]
    for name, made in zip(names, several, strict=True):
        files.write(Path(name), made)
    told = (
        "# warning: 1 of 4 cases of the {} file are not in the other one, and not compared, as allreduce float32 2x1, "
    )
    for order, place in ((names, "first"), (names[::-1], "second")):
        assert main(["bench", "compare", *order]) == 0
        assert capsys.readouterr().out.splitlines()[-1] == told.format(place) + "1K bytes, hpccoll"
    assert main(["bench", "compare", names[0], names[0]]) == 0
    assert "not compared" not in capsys.readouterr().out
    assert main(["bench", "compare", *names, "--json"]) == 0  # it printed the table
    found = json.loads(capsys.readouterr().out)
    assert (len(found["cases"]), found["only_in_first"], found["only_in_second"]) == (3, 1, 0)
    assert {case["verdict"] for case in found["cases"]} == {"no difference seen"}
    assert all(case["low"] <= case["ratio"] <= case["high"] and case["launches"] == [6, 6] for case in found["cases"])
    assert main(["bench", "compare", *names, "--quiet"]) == 0 and not capsys.readouterr().out


def test_many_cases_need_more_launches() -> None:
    """6 launches of each side have at best p = 2/924, which 24 cases make 0.052."""
    several = [results(), results(2.0)]
    for made in several:
        for (key, case), size in itertools.product(list(made.cases.items()), range(3, 8)):
            made.cases[replace(key, bytes=size)] = replace(case, key=replace(key, bytes=size))
    found = compare.compare(*several)
    assert len(found) == 4 + 2 * 5 and {one.verdict for one in found} == {"slower"}
    for made in several:
        for (key, case), ranks in itertools.product(list(made.cases.items()), (4, 8)):
            made.cases[replace(key, ranks=ranks)] = replace(case, key=replace(key, ranks=ranks))
    found = compare.compare(*several)
    assert {(one.verdict, one.missing) for one in found} == {("no verdict", (1, 1))}
    assert compare.status(found) == 4


def test_intervals_are_over_launches_if_there_are_five(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One launch has that of its samples, 2 to 4 have a range, and 5 have an interval over launches."""
    for launches, count, mark, said in (
        (1, 4, " ? ", ""),
        (1, 20, " ", "the intervals are of one launch"),
        (3, 20, "r ", "r: the range of the launches' medians"),
        (6, 20, " ", ""),
    ):
        made = results(launches=launches, count=count)
        files.write(tmp_path / "a.h5", made)
        assert main(["bench", "show", str(tmp_path / "a.h5")]) == 0
        out = capsys.readouterr().out
        assert mark in out and said in out and ("interval needs 5" in out) == (launches == 3)
        assert main(["bench", "show", str(tmp_path / "a.h5"), "--json"]) == 0
        case = json.loads(capsys.readouterr().out)["cases"][0]
        medians = [np.median(one) for one in next(iter(made.cases.values())).by_launch()]
        assert case["median_s"] == pytest.approx(np.median(medians)) and case["launches"] == launches
        if launches == 3:
            assert (case["low_s"], case["high_s"]) == (min(medians), max(medians))
        assert case["interval"] == {1: "samples of a launch", 3: "range of launches", 6: "launches"}[launches]


def test_warnings_that_differ_in_a_value_are_one() -> None:
    made = results(launches=2)
    for launch, load in zip(made.launches, ("9.5", "10.2"), strict=True):
        launch["warnings"] = [f"h was loaded before the ranks began: load average {load} on 2 processors", "else"]
    made.launches[1]["warnings"] += [f"memcpy has no {what} of float32: it is a floor" for what in ("scan", "gather")]
    assert warnings(made) == [
        "h was loaded before the ranks began: load average 9.5 to 10.2 on 2 processors",
        "else",
        "memcpy has no scan, gather of float32: it is a floor",
    ]


def test_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = results()
    next(iter(made.cases.values())).facts["ended"] = "limit"
    files.write(tmp_path / "a.h5", made)
    assert main(["bench", "show", str(tmp_path / "a.h5"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    case = found["cases"][1]
    assert case["low_s"] <= case["median_s"] <= case["high_s"] and case["bytes"] == 1024
    assert case["busbw_bytes_per_s"] == pytest.approx(1024 / case["median_s"])
    assert found["warnings"] == warnings(made) and "1 of 4 cases ended at the limit" in found["warnings"][0]
