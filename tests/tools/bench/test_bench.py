# SPDX-License-Identifier: Apache-2.0
"""Real jobs of `hpccoll bench`: that what is measured is verified and kept, and what is worthless refused."""

import contextlib
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path

import pytest

from hpccoll.__main__ import main
from hpccoll.tools.bench import conditions, files, measure, start, training
from hpccoll.tools.bench.collectives import COLLECTIVES
from hpccoll.tools.bench.results import ResultsError

pytestmark = pytest.mark.timeout(240)
QUICK = ("--seconds", "0.01", "--least", "6", "--most", "10", "--warmup", "1", "--oversubscribed")


def hpccoll(*words: object, launched: int = 0, env: dict[str, str] | None = None) -> tuple[int, str, str]:
    """Run the command, under `hpccoll run` with so many ranks if `launched`."""
    before = [sys.executable, "-P", "-m", "hpccoll"]
    launch = [*before, "run", "-np", launched, "--nodes", "2", "--timeout", "100", "--"] if launched else []
    command = [str(word) for word in (*launch, *before, "bench", *words)]
    done = subprocess.run(
        command, env={**os.environ, "OMP_NUM_THREADS": "1", **(env or {})}, capture_output=True, text=True, timeout=200,
        check=False,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def test_all_collectives_under_a_launcher(tmp_path: Path) -> None:
    words = ("all", "--sizes", "100", "--arm", "ring:algorithm=ring", "--named", "--plan", *QUICK)
    status, out, err = hpccoll(*words, "--against", "mpi4py", "--out", tmp_path / "a.h5", launched=2)
    assert status == 0, out + err
    found = files.read(tmp_path / "a.h5")
    for name in COLLECTIVES:
        there = {key.contestant for key in found.cases if key.what == name}
        ways = {"hpccoll", "hpccoll ring", "hpccoll plan", *([] if name == "sendrecv" else ["hpccoll named"])}
        assert there >= ways | (set() if name == "barrier" else {"memcpy"}), name
        placed = name in ("allreduce", "reduce", "scan", "exscan")
        assert ("hpccoll ring plan in place" in there, "openmpi in place" in there) == (placed, placed), name
        assert f"# {name}, float32, host memory, 2 ranks on 2 nodes" in out
    assert {key.what for key in found.cases if "hpccoll" not in key.library} == set(COLLECTIVES)
    assert all(case.facts["verified"] and len(case.samples) >= 6 for case in found.cases.values())
    for case in found.cases.values():
        assert all(len(values) == len(case.samples) for values in case.parts.values())
        assert (case.parts[measure.MEAN] <= case.samples * (1 + 1e-9)).all()
    measured = [case.parts[measure.NEAREST] for case in found.cases.values() if measure.NEAREST in case.parts]
    for nearest in measured:  # 0: another process had the core; a case that has nothing else is without this part
        assert ((nearest == 0) | (nearest > 1e-9)).all() and (nearest > 0).any() and (nearest < 1).all()
    assert measured
    assert "1 warm-up calls and up to 10 to try; inputs written before each call" in out and "as in OSU's" in out
    (launch,) = found.launches
    assert launch["ranks"] == launch["nodes"] == 2 and len(launch["placement"]) == 2
    assert launch["knobs"]["nodes"] == "2" and launch["environment"]["OMP_NUM_THREADS"] == "1"
    assert "HPCCOLL_SECRET" not in str(launch) and launch["machine"]["kernel"] and "run" not in launch["command"]


@pytest.mark.slow
def test_it_starts_itself_several_times(tmp_path: Path) -> None:
    words = ("allreduce", "barrier", "-np", 2, "--launches", 2, "--sizes", "8,64", "--json", *QUICK)
    words += ("--synchronise", "clocks")
    status, out, err = hpccoll(*words, "--against", "memcpy", "--out", tmp_path / "a.h5")
    assert status == 0, err
    found = files.read(tmp_path / "a.h5")
    assert all(0 < case.facts["clock error"] < 1 and case.facts["clock drift"] < 1 for case in found.cases.values())
    assert {launch["limits"]["synchronise"] for launch in found.launches} == {"clocks"}
    assert len(found.launches) == 2 and all(set(case.launch) == {0, 1} for case in found.cases.values())
    assert {case["library"] for case in json.loads(out)["cases"]} == {"hpccoll", "memcpy"}


@pytest.mark.slow
def test_gloo_and_hpccoll_in_turn(tmp_path: Path) -> None:
    words = ("allreduce", "broadcast", "reducescatter", "-np", 2, "--sizes", "1K", "--quiet", *QUICK)
    words += ("--dtype", "float32,float16")
    status, out, err = hpccoll(*words, "--against", "gloo,mpi4py", "--out", tmp_path / "a.h5")
    assert status == 0 and not out, err
    found = files.read(tmp_path / "a.h5")
    assert {(key.library, key.dtype) for key in found.cases if key.what == "allreduce"} - {
        ("memcpy", "float32"), ("memcpy", "float16")
    } == {
        ("hpccoll", "float32"), ("hpccoll", "float16"), ("gloo", "float32"), ("gloo", "float16"), ("openmpi", "float32")
    }  # fmt: skip
    assert "openmpi has no allreduce of float16: MPI has no 16-bit float" in found.launches[0]["warnings"]


@pytest.mark.slow
def test_the_control_plane(tmp_path: Path) -> None:
    """Real ranks, virtual ones, and the predecessor's counts; show, merge and JSON know them."""
    words = ("control", "--tensors", "5,resnet50", "--virtual", "6,96", *QUICK, "--out", tmp_path / "a.h5")
    status, out, err = hpccoll(*words, "--against", "mpi4py", launched=2)
    assert status == 0, out + err
    found = files.read(tmp_path / "a.h5")
    real = {(key.what, key.contestant) for key in found.cases if key.kind == "control"}
    for count in (5, 161):
        assert (f"{count} tensors, cached", "hpccoll in groups") in real
        assert {(f"{count} tensors, {which}", "hpccoll") for which in ("first", "cached")} <= real
    assert {library for _, library in real} > {"hpccoll", "hpccoll in groups"}
    virtual = {(key.what, key.arm, key.ranks): case for key, case in found.cases.items() if key.kind == "engine"}
    assert len(virtual) == 2 * 2 * 2 * 4  # tensors, ranks, groups, arrivals
    case = virtual["161 tensors, in order", "", 96]
    assert case.facts["messages"] == 2 * 95 and case.facts["predecessor"]["messages"] == 448
    assert len(case.samples) >= 6 and (case.samples > 0).all()
    assert "# control plane: 161 tensors, cached, 2 ranks on 2 nodes" in out and "predecessor, by its rules" in out
    assert main(["bench", "show", str(tmp_path / "a.h5"), "--json"]) == 0


def test_virtual_ranks_that_do_not_fit_are_refused() -> None:
    status, _, err = hpccoll("control", "--virtual", "1000000000")
    assert status == 1 and "GB of memory, and " in err and "fewer ranks, or fewer --tensors" in err


def test_a_wrong_result_ends_everything(tmp_path: Path) -> None:
    """A library that adds one on one rank; nothing is written."""
    program = tmp_path / "wrong.py"
    program.write_text(
        "import sys; from hpccoll.__main__ import main; from hpccoll.tools.bench import libraries\n"
        "right = libraries.Hpccoll.call\n"
        "def wrong(self, task):\n"
        "    call = right(self, task)\n"
        "    def both():\n"
        "        call()\n"
        "        task.out[3:5] += task.rank\n"
        "    return both\n"
        "libraries.Hpccoll.call = wrong\n"
        "sys.exit(main(['bench', 'allreduce', '--sizes', '64', '--oversubscribed', '--in-job', '--out', 'a.h5']))\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-m", "hpccoll", "run", "-np", "2", "--timeout", "60", "--", sys.executable, program],
        capture_output=True, text=True, timeout=100, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.count("a wrong result: hpccoll") == 1
    assert "allreduce of 64 bytes of float32: rank 1 has" in done.stderr and "(2 of 16 are wrong)" in done.stderr
    assert not (tmp_path / "a.h5").exists()


@pytest.mark.slow
def test_more_ranks_than_processors_are_refused() -> None:
    ranks = len(os.sched_getaffinity(0)) + 1
    shell = {"SLURM_STEP_ID": "0", "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"}  # an interactive step of Slurm
    status, _, err = hpccoll("allreduce", "--sizes", "8", "-np", ranks, env=shell)
    assert status == 1 and f"{ranks} ranks on " in err and "--oversubscribed if this is meant" in err


def test_ranks_that_run_alone_are_refused() -> None:
    """Each of two processes makes a World of its own, as with a launcher of another MPI."""
    env = {"SLURM_STEP_ID": "0", "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2", "HPCCOLL_ALLOW_SINGLETON": "1"}
    status, out, err = hpccoll("allreduce", "--sizes", "8", *QUICK, env=env)
    assert status == 1 and "2 ranks were started, but each rank believes to be alone" in err, out


def reports(*several: dict[str, object]) -> list[dict[str, object]]:
    same = {"host": "h", "cpus": "0-3", "quota": None, "load": 0.0, "hpccoll": "1", "build": "b", "python": "3"}
    return [same | one for one in several]


def test_ranks_of_different_builds_are_refused() -> None:
    with pytest.raises(ResultsError, match=r"different versions of build: b on ranks 0, 2; c on rank 1"):
        conditions.judge(reports({}, {"build": "c"}, {}), 0, False)


def test_processors_are_counted_per_host_with_the_limit_of_the_container() -> None:
    assert conditions.judge(reports(*[{}] * 4), 4, False) == []
    assert conditions.crowded(reports(*[{"quota": 2.0}] * 4)) == {"h": (4, 2)}
    assert conditions.crowded(reports({"cpus": "0"}, {"cpus": "0"}, {"host": "g"})) == {"h": (2, 1)}
    (said,) = conditions.judge(reports(*[{}] * 5), 5, True)
    assert said == "oversubscribed: 5 ranks on 4 processors of h"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["allreduc"], "collective 'allreduc': there are allreduce, "),
        (["allreduc"], ", control, startup"),
        (["allreduce", "--dtype", "float8"], "--dtype 'float8': there are float32, "),
        (["allreduce", "--against", "mvapich"], "--against 'mvapich': there are mpi4py, "),
        (["allreduce", "--against", "nccl"], "NCCL needs a GPU per rank"),
        (["allreduce", "--against", "mpich=/no/venv"], "there is no /no/venv/bin/python"),
        (["allreduce", "--arm", "ring"], "NAME:KNOB=VALUE"),
        (["allreduce", "--busy", "99"], "--busy 99: from 0 to 16 processes per core"),
        (["allreduce", "--arm", ":algorithm=ring"], "each variant has a name of its own"),
        (["allreduce", "--arm", "a:algorithm=ring", "--arm", "a:rails=1"], "a:rails=1: each variant has a name"),
        (["allreduce", "--most", "5"], "--most 5: a case has 10 samples at least"),
        (["training", "--model", "nothing"], "--model nothing: there are bert-large, "),
        (["allreduce", "--out", "/proc/version/r.h5"], "/proc/version/r.h5 could not be written: "),
        (["allreduce", "--out", "/proc/r.h5"], "/proc/r.h5 could not be written: "),
        (["startup", "--virtual", "1", "--out", "/proc"], "/proc could not be written: "),
        (["merge", "a.h5", "--facts"], "a.h5: "),
        (["compare", "a.h5"], "which files?"),
    ],
)
def test_wrong_words_are_refused(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *words]) == 1
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("words", [
    "bench -np 0", "bench -np x", "bench --launches 0", "bench --timeout 0", "bench --seconds nan", "bench --width -1",
    "bench --most 0", "bench --least 0", "bench --warmup -1", "bench training --compute -1", "tune --out x.toml -np 0",
    "tune --out x.toml --seconds inf", "tune --out x.toml --timeout -1", "tune --out x.toml --compute -1",
    "study run x.toml --poll 0", "model choice --nodes 0", "model choice --nodes 4,a",
    "model choice --nodes 4 --ranks-per-node 0", "model choice --nodes 4 --fanout 0", "model choice --rails -1",
    "model predict m.json --compute 0", "model predict m.json --within -1", "model fit a.h5 --most-nodes -1",
])  # fmt: skip
def test_numbers_that_make_no_sense_are_refused(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Before, some were taken for the default or made an empty table, and others ended in a traceback."""
    with pytest.raises(SystemExit, match="2"):
        main(words.split())
    *_, option, value = words.split()
    value = value.rpartition(",")[2]
    said = rf"error: argument [-/npranks]*{option}(/-n)?: '{value}': a (whole )?number (above 0|of [01] or more)"
    assert re.search(said, capsys.readouterr().err)


def test_results_that_would_be_lost_are_not_measured(tmp_path: Path) -> None:
    status, out, err = hpccoll("allreduce", "--sizes", "8", "--out", str(tmp_path), *QUICK, launched=2)
    assert status == 1 and f"{tmp_path} could not be written: [Errno 21] Is a directory" in err, (out, err)
    assert "Median(us)" not in out


@pytest.mark.parametrize("words", [
    "bench show --facts a.h5", "bench merge a.h5 --out m.h5 b.h5", "bench compare a.h5 --json b.h5",
    "model fit a.h5 --out m.json b.h5", "lint a.sh --json b.sh",
])  # fmt: skip
def test_words_may_stand_behind_options(
    words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, they were unrecognized arguments."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.sh").touch()
    assert main(words.split()) in (1, 2)
    missing = "b.sh: No such file" if "lint" in words else "a.h5: there is no such file"
    assert missing in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main([*words.split(), "--nothing", "c"])
    assert "unrecognized arguments: " in capsys.readouterr().err


def processes(named: str) -> list[str]:
    """Return the command lines of processes that have this in them."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if named in (text := file.read_bytes().replace(b"\0", b" ").decode(errors="replace")):
                found.append(text)
    return found


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_no_rank_outlives_the_command(number: int, tmp_path: Path) -> None:
    """A scheduler ends a job by SIGTERM, a terminal by SIGHUP. Before, the ranks went on for up to ten minutes."""
    out = tmp_path / "r.h5"
    words = ["--sizes", "8", "--seconds", "100", "--width", "0", "--most", "1000000", "--oversubscribed"]
    command = [sys.executable, "-P", "-m", "hpccoll", "bench", "barrier", "-np", "2", *words, "--out", str(out)]
    started = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        limit = time.monotonic() + 60
        while sum("--in-job" in line and " run " not in line for line in processes(str(tmp_path))) < 2:
            assert time.monotonic() < limit and started.poll() is None
            time.sleep(0.05)
        started.send_signal(number)
        assert started.wait(30) == -number
        limit = time.monotonic() + 30
        while left := processes(str(tmp_path)):
            assert time.monotonic() < limit, left
            time.sleep(0.05)
    finally:
        started.kill()


def test_a_temporary_folder_ends_with_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also by SIGTERM, as a scheduler sends it: before, the folder stayed."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(SystemExit) as ended, start.folder_of(None, "one"):
        assert len(list(tmp_path.iterdir())) == 1
        signal.raise_signal(signal.SIGTERM)
    assert ended.value.code == 128 + signal.SIGTERM and not list(tmp_path.iterdir())
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_two_that_measure_into_one_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Before, each removed the results of the other."""
    out = tmp_path / "r.h5"
    with start.folder_of(out, "one") as folder:
        (folder / "0-0.h5").touch()
        assert main(["bench", "barrier", "-np", "2", "--out", str(out)]) == 1
        assert f"{out}: another `hpccoll bench` measures into it now" in capsys.readouterr().err
        assert (folder / "0-0.h5").exists()
    assert not folder.exists()
    with pytest.raises(ZeroDivisionError), start.folder_of(out, "one") as folder:
        (folder / "0-0.h5").touch()
        raise ZeroDivisionError
    with start.folder_of(out, "another"):
        assert not (folder / "0-0.h5").exists()


def test_a_peer_that_is_not_there_is_named() -> None:
    status, _, err = hpccoll("allreduce", "--sizes", "8", "-np", "2", "--against", "horovod", *QUICK)
    assert status == 1 and "--against horovod: No module named 'horovod'" in err, err


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "what", [("training", "--model", "even:1000:4", "--compute", "0.002"), ("allreduce", "--sizes", "4K")]
)
def test_tensorflow_sums_beside_us(what: tuple[str, ...], tmp_path: Path) -> None:
    """Its sums are verified, as all are, before and after the timing."""
    pytest.importorskip("tensorflow")
    words = (*what, "-np", "2", "--timeout", "350", "--against", "tf.distribute", "--quiet", *QUICK)
    status, _, err = hpccoll(*words, "--out", tmp_path / "a.h5")
    assert status == 0, err
    assert {key.library for key in files.read(tmp_path / "a.h5").cases} - {"memcpy"} == {"hpccoll", "tf.distribute"}


def test_steps_of_training_are_replayed(tmp_path: Path) -> None:
    words = ("training", "--model", "even:1000:4", "--compute", "0.002", "--arm", "fp16:wire=fp16", "--quiet", *QUICK)
    status, _, err = hpccoll(*words, "--against", "mpi4py", "--out", tmp_path / "a.h5", launched=2)
    assert status == 0, err
    found = files.read(tmp_path / "a.h5")
    assert {key.contestant for key in found.cases} > {"hpccoll", "hpccoll fp16"} and len(found.cases) == 3
    for key, case in found.cases.items():
        assert (key.kind, key.what, key.bytes) == ("step", "training even:1000:4", 4000)
        assert min(case.samples) >= 0.002 and case.facts["verified"]
        assert case.parts["exposed communication"] == pytest.approx(case.samples - case.parts["compute"])


@pytest.mark.parametrize(
    ("model", "tensors", "elements"),
    [("resnet50", 161, 25_557_032), ("gpt2", 148, 124_439_808), ("bert-large", 292, 334_090_240)],
)
def test_traces_of_known_models(model: str, tensors: int, elements: int) -> None:
    found = training.trace(model)
    assert (found.model, len(found.elements), sum(found.elements)) == (model, tensors, elements)
    assert list(found.ready) == sorted(found.ready) and 0.2 < found.ready[0] < 0.7 and 0.99 < found.ready[-1] <= 1
    assert "recorded by PyTorch" in found.source


def test_a_trace_that_is_not_there_is_named() -> None:
    with pytest.raises(ResultsError, match="there are bert-large, gpt2, resnet50, stemdl, even:"):
        training.trace("resnet")


@pytest.mark.parametrize(
    ("model", "elements"),
    [("even:100K:5", [20_000] * 5), ("even:1.5M:1", [1_500_000]), ("even:1e3:2", [500] * 2), ("even:3:2", [1, 2])],
)
def test_even_gradients(model: str, elements: list[int]) -> None:
    assert list(training.trace(model).elements) == elements


@pytest.mark.parametrize("model", ["0:4", "1M:0", "1M:-3", "nan:2", "1e999:2", "1.2.3:2", "2:3", "4", "1M:2:3", "x:y"])
def test_gradients_that_cannot_be_are_refused(model: str) -> None:
    """Before, some of them ended in a traceback."""
    with pytest.raises(ResultsError, match=f"--model even:{re.escape(model)}: even:ELEMENTS:TENSORS, as even:25M:160"):
        training.trace(f"even:{model}")


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"gradients": 3}', '{"gradients": [["x", 1]], "model": "m"}'])
def test_a_file_that_is_no_trace_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "m.json").write_text(text)
    with pytest.raises(ResultsError, match=r"m\.json: no trace as `hpccoll bench record` writes it: "):
        training.trace(f"{tmp_path}/m.json")


@pytest.mark.slow
def test_a_model_is_recorded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A shared parameter and one without a gradient among them; the last layer is ready first."""
    (tmp_path / "models.py").write_text(
        "import torch\n"
        "def small():\n"
        "    'Three layers; a test'\n"
        "    model = torch.nn.Sequential(*(torch.nn.Linear(n, 4, bias=False) for n in (8, 4, 4)))\n"
        "    model.unused = torch.nn.Parameter(torch.zeros(3))\n"
        "    x = torch.ones(2, 8)\n"
        "    return model, lambda: model(x).sum()\n"
    )
    out = tmp_path / "small.json"
    assert main(["bench", "record", f"{tmp_path}/models.py:small", "--out", str(out)]) == 0
    assert "3 gradients, 64 elements" in capsys.readouterr().out
    found = training.trace(str(out))
    assert found.elements == (16, 16, 32) and found.source.startswith("Three layers; a test; recorded by PyTorch")
    for words, said in ((["x"], "FILE.py:FUNCTION"), ([f"{tmp_path}/models.py:none"], "there is no none")):
        assert main(["bench", "record", *words, "--out", str(out)]) == 1
        assert said in capsys.readouterr().err


def test_a_peer_in_another_environment_gets_this_hpccoll_alone(tmp_path: Path) -> None:
    """What stands beside hpccoll must not hide the other environment's packages."""
    for _ in range(2):  # each launch asks for it
        path = start.only_hpccoll(tmp_path)
    code = "import sys, hpccoll; print(hpccoll.__version__, hpccoll.__file__); sys.exit('benchmarks' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], env={**os.environ, "PYTHONPATH": str(path)}, capture_output=True, text=True,
        timeout=60, check=True, cwd=tmp_path,
    )  # fmt: skip
    version, file = done.stdout.split()
    assert version == metadata.version("hpccoll") and Path(file).parent == path / "hpccoll"
    assert sorted(p.name for p in path.iterdir()) == ["hpccoll", f"hpccoll-{version}.dist-info"]


def test_a_folder_of_launches_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    """A limit on the size of files stands for a full disk. Nothing is left."""
    (tmp_path / "b.h5.launches").touch()
    (tmp_path / "c.h5.launches" / start.LOCK).mkdir(parents=True)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    for name, why in (("a", "File too large"), ("b", "File exists"), ("c", "Is a directory")):
        resource.setrlimit(resource.RLIMIT_FSIZE, (8, limits[1]))
        try:
            with pytest.raises(ResultsError, match=rf"{name}.h5.launches could not be written: {why}"):
                start.folder_of(tmp_path / f"{name}.h5", "asked").__enter__()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert sorted(os.listdir(tmp_path)) == ["b.h5.launches", "c.h5.launches"]


def test_a_folder_of_launches_that_is_removed_meanwhile_is_no_error(tmp_path: Path) -> None:
    """The results are written by then."""
    with start.folder_of(tmp_path / "r.h5", "asked") as folder:
        shutil.rmtree(folder)
    assert not list(tmp_path.iterdir())
