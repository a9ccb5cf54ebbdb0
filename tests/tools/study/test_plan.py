# SPDX-License-Identifier: Apache-2.0
"""The file of a study: its runs, their commands, and what is refused."""

import re
from pathlib import Path

import pytest

from hpccoll.tools.study import jobs, launches, plan
from hpccoll.tools.study.plan import StudyError

TEXT = """
name = "s"
nodes = [2, 1]
ranks_per_node = 2
scaling = ["weak", "strong"]
repetitions = 2
{more}
[bench]
command = ["training", "--compute", "{{size}}"]
size = 0.1
[arms.fp32]
[arms.fp16]
variables = {{ HPCCOLL_WIRE = "fp16" }}
arguments = ["--least", "6"]
"""


def study(tmp_path: Path, more: str = "", text: str = TEXT) -> plan.Study:
    file = tmp_path / "s.toml"
    file.write_text(text.format(more=more))
    return plan.load(file)


def test_runs_go_from_few_nodes_to_many_with_the_arms_in_turn(tmp_path: Path) -> None:
    runs = list(plan.runs(study(tmp_path)))
    assert len(runs) == 12 and len({run.stem for run in runs}) == 12
    assert [run.nodes for run in runs] == [1] * 4 + [2] * 8
    assert [run.arm for run in runs[:4]] == ["fp32", "fp16", "fp32", "fp16"]
    assert [run.scaling for run in runs] == ["weak"] * 8 + ["strong"] * 4


def test_steps_that_the_program_reports_have_no_warmup_here(tmp_path: Path) -> None:
    """Before, the number had no effect: study.finish() left out five steps."""
    with pytest.raises(StudyError, match=r"warmup is for steps that `log` finds; .* study.finish\(warmup=3\)"):
        study(tmp_path, text=TEXT.replace("[bench]", "[program]\nwarmup = 3"))


def test_a_command_that_knows_its_scaling_runs_once_for_each(tmp_path: Path) -> None:
    """Otherwise weak and strong scaling are one command on the fewest nodes, and one launch."""
    text = TEXT.replace('"--least"', '"--least{{scaling}}"')
    runs = list(plan.runs(study(tmp_path, text=text)))
    assert [run.scaling for run in runs] == ["weak"] * 4 + ["strong"] * 4 + ["weak"] * 4 + ["strong"] * 4


def test_commands(tmp_path: Path) -> None:
    found = study(tmp_path, "oversubscribed = true")
    words = launches.command(found, plan.Run("strong", 2, "fp16", 1), tmp_path)
    assert words[:3] == ("env", "HPCCOLL_WIRE=fp16", "OMP_NUM_THREADS=1")
    text = " ".join(words)
    assert "hpccoll bench training --compute 0.05 --least 6 --quiet" in text
    assert f"--out {tmp_path}/runs/strong-2-nodes-fp16-1.h5 --expect 4 --oversubscribed" in text
    weak = launches.command(found, plan.Run("weak", 2, "fp32", 1), tmp_path)
    assert "--compute 0.1 " in " ".join(weak)


def test_a_program(tmp_path: Path) -> None:
    text = 'name = "p"\nnodes = [1]\n[program]\ncommand = ["python", "train.py", "--batch", "{{size}}"]\nsize = 64\n'
    (run,) = list(plan.runs(study(tmp_path, text=text + "{more}")))[:1]
    words = launches.command(plan.load(tmp_path / "s.toml"), run, tmp_path, "py")
    assert words == ("env", f"HPCCOLL_STUDY={tmp_path}/runs/{run.stem}.h5", "py", "train.py", "--batch", "64")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("repetition = 3", "no key 'repetition': did you mean repetitions?"),
        ("minutes = 0", "at least 1"),
        ('minutes = "3"', "minutes = '3' is of the wrong type"),
        ("[program]\ncommand = ['x']", "give either"),
        ("= 3", "Invalid"),
        ("[arms.'a b']", "letters, digits"),
    ],
)
def test_wrong_studies_are_refused(more: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(StudyError, match=said):
        study(tmp_path, more)


@pytest.mark.parametrize(
    ("line", "needed"),
    [
        ("nodes = 2", "a list of whole numbers in [ ]"),
        ('scaling = "weak"', "a list of texts in quotes in [ ]"),
        ('program.command = "python train.py"', "a list of texts in quotes in [ ]"),
        ('program.size = "1"', "a whole number or a number"),
        ("arms = 3", "a table of tables"),
        ("gpus = 1", "true or false"),
        ("account = 1", "a text in quotes"),
        ("node_hours = true", "a number"),
        ('arms.a.arguments = "x"', "a list of texts in quotes in [ ]"),
        ('arms.a.variables = "x"', "a table of texts in quotes"),
        ("arms.a.variables = { OMP_NUM_THREADS = 2 }", "a table of texts in quotes"),
    ],
)
def test_a_value_of_another_type_is_refused(line: str, needed: str, tmp_path: Path) -> None:
    """Before, each character of a text was taken for a word of the command."""
    lines = {"name": '"p"', "nodes": "[1]", "program.command": '["x"]'} | dict([line.split(" = ", 1)])
    file = tmp_path / "s.toml"
    file.write_text("".join(f"{key} = {value}\n" for key, value in lines.items()))
    key = line.split(" = ")[0].rpartition(".")[2]
    with pytest.raises(StudyError, match=rf"{key} = .* is of the wrong type: {re.escape(needed)} is needed$"):
        plan.load(file)


WHOLE = """
name = "p"
nodes = {nodes}
scaling = ["strong"]
[program]
command = ["./solver", "{{size}}"]
size = {size}
"""


def whole(tmp_path: Path, nodes: list[int], size: float) -> plan.Study:
    file = tmp_path / "s.toml"
    file.write_text(WHOLE.format(nodes=nodes, size=size))
    return plan.load(file)


def test_a_size_that_nodes_do_not_divide(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match=r"size = 256 on 1 nodes is 85\.3333 on 3 .*as size = 6 or a multiple"):
        whole(tmp_path, [1, 2, 3], 256)
    with pytest.raises(StudyError, match=r"as size = 3 or a multiple"):
        whole(tmp_path, [2, 6], 256)
    for nodes, size, words in (
        ([2, 6], 3 << 40, ["3298534883328", "1099511627776"]),
        ([1, 3], 256.0, ["256", "85.33333333333333"]),
        ([1, 2], 0.1, ["0.1", "0.05"]),
    ):
        found = whole(tmp_path, nodes, size)
        assert [launches.filled(found, run)[1] for run in plan.runs(found)][:: found.repetitions] == words


@pytest.mark.parametrize(("key", "value"), [("nodes", "[1, 2, 1]"), ("scaling", '["weak", "weak"]')])
def test_a_point_that_is_there_twice(tmp_path: Path, key: str, value: str) -> None:
    lines = {"nodes": "[1, 2]", "scaling": '["weak"]'} | {key: value}
    file = tmp_path / "s.toml"
    text = "".join(f"{name} = {values}\n" for name, values in lines.items())
    file.write_text(f'name = "p"\n{text}[program]\ncommand = ["x"]\n')
    with pytest.raises(StudyError, match=f"{key}: .* is there twice"):
        plan.load(file)


@pytest.mark.parametrize(("log", "said"), [("(", "log: "), ("took (.*) s", "no group .*seconds")])
def test_a_pattern_that_cannot_be_used(log: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(StudyError, match=said):
        study(tmp_path, text=f'name = "p"\nnodes = [1]\n[program]\ncommand = ["x"]\nlog = "{log}"\n' + "{more}")


@pytest.mark.parametrize("word", ["{sice}", "{}", "{0}", "{", "{size.x}", "{nodes[a]}", "{arm:d}", "print({1: 2})"])
def test_a_word_in_braces_that_is_not_known(tmp_path: Path, word: str) -> None:
    (tmp_path / "s.toml").write_text(f'name = "p"\nnodes = [1]\n[bench]\ncommand = ["{word}"]\n')
    found = plan.load(tmp_path / "s.toml")
    with pytest.raises(StudyError, match=rf"'{re.escape(word)}' has something else in braces; there are \{{size\}}"):
        launches.command(found, next(plan.runs(found)), tmp_path)


def test_the_study_of_the_benchmarks() -> None:
    found = plan.load(Path(__file__).resolve().parents[3] / "benchmarks" / "scaling.toml")
    assert len(list(plan.runs(found))) == 9


def test_only_what_is_missing_is_submitted(tmp_path: Path) -> None:
    found = study(tmp_path)
    folder = plan.folder_of(tmp_path / "s.toml", found)
    runs = list(plan.runs(found))
    (folder / "runs").mkdir(parents=True)
    for run in runs[:5]:
        launches.result(folder, run).touch()
    book = jobs.Book(folder, [jobs.Job("strong", 2, [runs[8].stem], "7", "running", minutes=30)])
    todo = [(point, [run.stem for run in several]) for point, several in jobs.batches(found, book)]
    assert [point for point, _ in todo] == [("weak", 2), ("strong", 2)]
    assert todo[0][1] == [run.stem for run in runs[5:8]] and runs[8].stem not in todo[1][1]
    assert book.spent() == 2 * 0.5
    assert "5 of 12 runs done; jobs: 1 running" in jobs.progress(found, book)


@pytest.mark.parametrize("site", ["generic-cpu", "summit", "generic-lsf", "perlmutter"])
def test_scripts_of_all_schedulers(site: str, tmp_path: Path) -> None:
    found = study(tmp_path, f'site = "{site}"\naccount = "abc"')
    several = list(jobs.scripts(found, tmp_path, "hpccoll study run s.toml"))
    assert [(job.scaling, job.nodes) for job, _ in several] == [("weak", 1), ("weak", 2), ("strong", 2)]
    for job, text in several:
        assert text.count("hpccoll bench training") == 4 and all(stem in text for stem in job.runs)
        assert "# hpccoll study run s.toml" in text
