# SPDX-License-Identifier: Apache-2.0
"""Real studies on this machine: from a TOML file to a report, resumed, and with programs that report their steps."""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hpccoll import detect, study
from hpccoll.errors import InvalidArgumentError
from hpccoll.study import part
from hpccoll.tools.bench import control, files
from hpccoll.tools.bench.results import Results, ResultsError
from hpccoll.tools.study import collect, launches, plan, rank

pytestmark = pytest.mark.timeout(240)
STUDY = """
name = "s"
nodes = [1, 2]
repetitions = 1
oversubscribed = true
minutes = 2
[bench]
command = ["training", "--model", "even:1000:4", "--compute", "{size}", "--least", "6", "--most", "6", "--warmup", "1"]
size = 0.004
[arms.fp16]
variables = { HPCCOLL_WIRE = "fp16" }
"""
PROGRAM = """
import sys, time, numpy, hpccoll
from hpccoll import study
hpccoll.init()
for i in range(12):
    with study.step(items=float(sys.argv[1])):
        with study.part("compute"):
            time.sleep(0.002)
        with study.part("input"):
            pass
        hpccoll.allreduce(numpy.ones(4))
    if hpccoll.rank() == 0:
        print(f"step {i}: 0.0{i + 10} s", flush=True)
study.finish(warmup=2)
hpccoll.shutdown()
"""


def hpccoll(*words: object) -> tuple[int, str]:
    command = [sys.executable, "-P", "-m", "hpccoll", "study", *map(str, words)]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=220, check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    return done.returncode, done.stdout


@pytest.mark.slow
def test_from_toml_to_report_and_resumed(tmp_path: Path) -> None:
    file, folder = tmp_path / "s.toml", tmp_path / "s.study"
    file.write_text(STUDY)
    status, out = hpccoll("run", file)
    assert status == 0, out + "".join(log.read_text() for log in (folder / "logs").iterdir())
    assert out.count(": done") == 2
    study = plan.load(file)
    done = [files.read(folder / "runs" / f"{run.stem}.h5") for run in plan.runs(study)]
    both = Results(done[0].launches[:1], {case.key: case for case in control.virtual("2", 6, 16, 6)})
    files.write(tmp_path / "control.h5", both)
    status, out = hpccoll("report", file, "--with", tmp_path / "control.h5")
    assert status == 0 and out.splitlines()[-1] == f"{folder}/report.html", out
    assert "virtual ranks, 2 tensors" in (folder / "report.html").read_text()
    found = files.read(folder / "s.h5")
    places = {(key.contestant, key.nodes, key.ranks) for key in found.cases if "training" in key.what}
    assert places == {("hpccoll fp16", n, n) for n in (1, 2)}
    ran = {launch["run"] for launch in found.launches if "run" in launch}  # the file of --with has a launch, too
    assert ran == {run.stem for run in plan.runs(study)}
    assert len(list((folder / "figures").iterdir())) >= 4
    killed = folder / "runs" / "weak-2-nodes-fp16-1.h5"
    killed.unlink()
    status, out = hpccoll("status", file)
    assert status == 1 and "1 of 2 runs done" in out and "missing: run the study again" in out
    status, out = hpccoll("run", file)
    assert status == 0 and out == "weak-2-nodes-fp16-1: done\nall 2 runs are done\n" and killed.exists()


@pytest.mark.slow
def test_a_program_reports_its_steps(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    (tmp_path / "p.toml").write_text(
        'name = "p"\nnodes = [2]\nrepetitions = 1\noversubscribed = true\nscaling = ["weak", "strong"]\n'
        '[program]\ncommand = ["python", "train.py", "{size}"]\nsize = 64\n'
    )
    status, out = hpccoll("run", tmp_path / "p.toml", "--report")
    assert status == 0, out + (tmp_path / "p.study" / "logs" / "weak-2-nodes-default-1.log").read_text()
    found = files.read(tmp_path / "p.study" / "p.h5")
    assert {key.what for key in found.cases} == {"train, weak scaling", "train, strong scaling"}  # of one launch
    assert len(found.launches) == 1
    case, other = found.cases.values()
    assert (case.key.ranks, len(case.samples)) == (2, 10) and list(case.samples) == list(other.samples)
    assert case.facts["items"] == 128 and min(case.parts["compute"]) >= 0.002
    assert list(case.parts) == ["compute", "input", "exposed communication"]
    assert all(
        sum(values) <= 1.0001 * seconds for *values, seconds in zip(*case.parts.values(), case.samples, strict=True)
    )


@pytest.mark.parametrize("name", ["", ".", "a\0b", 3])
def test_a_part_that_no_file_can_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgumentError, match=r"study.part: .* is no name of a part"), part(name):
        pass


def test_a_part_inside_a_part_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its time was in both, and the parts of a step took longer than the step. Here time passes by hand."""
    now, waited = [0.0], [0.0]

    def passes(seconds: float, blocked: float = 0.0) -> None:
        now[0] += seconds
        waited[0] += blocked

    monkeypatch.setattr(study.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(study, "_waited", lambda: waited[0])
    monkeypatch.setattr(study, "_steps", [])
    with study.step():
        with study.part("compute"):
            passes(1)
            with study.part("input"):
                passes(2, blocked=0.5)
                with study.part("compute"):
                    passes(4)
            with contextlib.suppress(KeyError), study.part("input"):
                raise KeyError
            passes(8, blocked=2)
        with study.part("exposed communication"), study.part("input"):
            passes(16)
            with pytest.raises(InvalidArgumentError, match="inside a step"), study.step():
                pass
    (one,) = study._steps
    assert one.seconds == 31 and one.parts == {"compute": 1 + 4 + 6, "input": 1.5 + 16, "exposed communication": 0}


def test_too_few_steps_are_counted_in_the_error() -> None:
    """Before, it said 0 steps of a program that had done three."""
    program = (
        "import hpccoll\nfrom hpccoll import study\nhpccoll.init()\nfor _ in range(3):\n with study.step(): pass\n"
    )
    words = [sys.executable, "-c", program + "study.finish()"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1 and "the ranks did 3 steps, and the first 5 are left out" in done.stderr


@pytest.mark.slow
def test_steps_are_read_from_a_log(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    (tmp_path / "p.toml").write_text(
        'name = "p"\nnodes = [2]\nrepetitions = 1\noversubscribed = true\n[program]\n'
        "log = 'step \\d+: (?P<seconds>\\S+)'\n"
        'command = ["python", "train.py", "8"]\n'
    )
    status, out = hpccoll("run", tmp_path / "p.toml", "--report")
    assert status == 0, out + (tmp_path / "p.study" / "logs" / "weak-2-nodes-default-1.log").read_text()
    (case,) = files.read(tmp_path / "p.study" / "p.h5").cases.values()
    assert (case.key.ranks, case.key.nodes) == (2, 2) and case.samples == pytest.approx(np.arange(0.015, 0.0215, 0.001))
    assert "were not verified" in (tmp_path / "p.study" / "report.html").read_text()


@pytest.mark.parametrize(
    ("env", "local", "nodes"),
    [
        ({"HPCCOLL_NODES": "3+1"}, 4, 2),
        ({"HPCCOLL_NODES": "4"}, 4, 4),
        ({"SLURM_STEP_NUM_NODES": "2"}, 2, 2),
        ({}, 2, 2),
    ],
)
def test_nodes_of_a_job_come_from_the_launcher(env: dict[str, str], local: int, nodes: int) -> None:
    place = detect.Place("mpirun", "RANK", 0, 4, local_size=local)
    assert rank.nodes_of(env, place, 4) == nodes


def test_a_program_that_fails_is_named_and_its_study_goes_on(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text(
        'name = "p"\nnodes = [1]\nrepetitions = 1\n[program]\ncommand = ["python", "-c", "import sys; sys.exit(3)"]\n'
    )
    status, out = hpccoll("run", tmp_path / "p.toml")
    assert status == 1 and "weak-1-nodes-default-1: failed with status 3, see " in out and "1 runs are missing" in out
    status, out = hpccoll("report", tmp_path / "p.toml")
    assert status == 1 and "no run has succeeded" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["no-such-program"], "hpccoll study: p: no-such-program: No such file or directory"),
        (["printf", "step 1 took 1,5 s\\n"], "finds no numbers but {'seconds': '1,5'}"),
        (["printf", "caf\\351\\nstep 1 took 1.5 s\\n"], ""),
    ],
)
def test_what_a_program_may_print(words: list[str], said: str, tmp_path: Path) -> None:
    """A number that is none, or a program that is not there, is a sentence; text of another encoding goes through."""
    (tmp_path / "p.toml").write_text(
        'name = "p"\nnodes = [1]\nrepetitions = 1\nranks_per_node = 2\noversubscribed = true\n'
        f"[program]\ncommand = {json.dumps(words)}\nlog = 'took (?P<seconds>\\S+) s'\nwarmup = 0\n"
    )
    status, out = hpccoll("run", tmp_path / "p.toml")
    log = (tmp_path / "p.study" / "logs" / "weak-1-nodes-default-1.log").read_bytes()
    assert status == bool(said) and said.encode() in log and b"Traceback" not in log, out + str(log)
    assert said or b"caf\351\n" in log


def test_a_program_without_steps_is_told_so(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text('name = "p"\nnodes = [1]\nrepetitions = 1\n[program]\ncommand = ["true"]\n')
    status, out = hpccoll("run", tmp_path / "p.toml")
    assert status == 1 and "weak-1-nodes-default-1: ended with status 0 and has reported no steps" in out


def test_results_of_a_file_that_has_changed_since_are_refused(tmp_path: Path) -> None:
    """They counted as what the file says now: half of the work, measured on one node, as that of two nodes."""
    file, text = tmp_path / "p.toml", (
        'name = "p"\nnodes = [1]\nrepetitions = 1\n[program]\nwarmup = 0\nlog = \'took (?P<seconds>\\S+) s\'\n'
        'command = ["printf", "%s took 1.5 s\\\\n", "{size}", "1", "2", "3", "4", "5"]\nsize = 100\n'
    )  # fmt: skip
    file.write_text(text)
    assert hpccoll("run", file) == (0, "weak-1-nodes-default-1: done\nall 1 runs are done\n")
    file.write_text(text.replace("size = 100", "size = 50"))
    for action in ("run", "collect", "report"):
        status, out = hpccoll(action, file)
        assert status == 1 and out.startswith("hpccoll study: 1 runs have measured something else than"), out
        assert "took 1.5 s\\n' 100 1 2 3 4 5" in out and "took 1.5 s\\n' 50 1 2 3 4 5" in out
    file.write_text(text.replace("nodes = [1]", "nodes = [1, 2]").replace("repetitions = 1", "repetitions = 2"))
    status, out = hpccoll("run", file, "--dry-run")  # more of the same is no change
    assert status == 0 and out.count("hpccoll run -np ") == 3, out


def test_the_status_of_a_folder_that_one_cannot_write(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text('name = "p"\nnodes = [1]\n[program]\ncommand = ["true"]\n')
    status, out = hpccoll("status", tmp_path / "p.toml")
    assert status == 1 and "0 of 3 runs done" in out
    assert not (tmp_path / "p.study").exists()
    (tmp_path / "p.study").write_text("a file where the folder would be")
    status, out = hpccoll("run", tmp_path / "p.toml")
    assert status == 1 and "hpccoll study: [Errno 17] File exists: " in out and "Traceback" not in out


def test_ranks_that_ran_alone_are_refused(tmp_path: Path) -> None:
    """A file of one rank where two were asked for."""
    from made_studies import results

    file = tmp_path / "s.toml"
    file.write_text(STUDY)
    study = plan.load(file)
    folder = plan.folder_of(file, study)
    run = plan.Run("weak", 2, "fp16", 1)
    alone = results()
    alone.launches[0] |= {"ranks": 1, "nodes": 1}
    files.write(launches.result(folder, run), alone)
    with pytest.raises(ResultsError, match="2 ranks on 2 nodes were asked for, and it ran with 1 ranks on 1 nodes"):
        collect.collect(study, folder)


def test_the_budget_leaves_out_what_could_exceed_it(tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text(STUDY.replace("minutes = 2", "minutes = 60\nnode_hours = 0.5"))
    status, out = hpccoll("run", file)
    assert status == 1 and out.count("left out: ") == 2 and "2 runs are missing" in out


def test_a_dry_run_shows_the_commands(tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text(STUDY)
    status, out = hpccoll("run", file, "--dry-run")
    assert status == 0 and out.count("hpccoll run -np ") == 2 and "HPCCOLL_WIRE=fp16" in out
    assert out.splitlines()[-1] == "# 2 runs here, one after the other, each of at most 2 minutes"
    assert not (tmp_path / "s.study").exists()


PAGE = Path(__file__).resolve().parents[3] / "docs" / "study.md"


def first_of_the_page(folder: Path) -> Path:
    """The first TOML file of docs/study.md."""
    file = folder / "first.toml"
    file.write_text(PAGE.read_text().split("```toml\n")[1].split("```")[0])
    return file


def test_the_files_of_the_page_are_studies(tmp_path: Path) -> None:
    first = first_of_the_page(tmp_path)
    assert len(list(plan.runs(plan.load(first)))) == 12
    _, _, own, log, cluster = (part.split("```")[0] for part in PAGE.read_text().split("```toml\n"))
    head = 'name = "x"\nnodes = [1]\n'
    for text in (head + own, head + log, head + cluster + own):
        first.write_text(text)
        assert plan.load(first).program
    _, *rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    keys = {name for row in rows for name in row.split("|")[1].replace("`", "").replace(",", " ").split()}
    fields = {*plan.Study.__dataclass_fields__} - {"bench", "program", "arms", "name"}
    assert fields <= keys


@pytest.mark.slow
def test_the_commands_of_the_page(tmp_path: Path) -> None:
    file = first_of_the_page(tmp_path)
    for words in (("run", file, "--dry-run"), ("run", file), ("report", file)):
        status, out = hpccoll(*words)
        assert status == 0, out
    assert (tmp_path / "first.study" / "report.html").exists()
