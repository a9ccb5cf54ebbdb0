# SPDX-License-Identifier: Apache-2.0
"""Starts the jobs of a measurement: `hpccoll run`, several times, with the environments of the peers in turn."""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import hpccoll
from hpccoll import config, durable, inherited
from hpccoll.tools.bench import conditions, files, results
from hpccoll.tools.bench.results import Results, ResultsError
from hpccoll.tools.kin import end_with_parent

LOCK = "lock"
"""The file in a folder of launches that tells whether a process works there."""


@dataclass(frozen=True)
class Launch:
    """The options for starting the ranks."""

    ranks: int
    nodes: str = "1"
    launches: int = 1
    timeout: float = 600.0


@dataclass(frozen=True)
class Environment:
    """A Python environment, and the peers that run in its jobs beside hpccoll."""

    python: str
    peers: tuple[str, ...]
    own: bool = True
    """The environment of this process; in another one only the peers are kept, and hpccoll runs here."""


def environments(against: Sequence[str]) -> list[Environment]:
    """Sort the words of --against, `gloo` or `mpich=path/to/venv`, by environment.

    :raises ResultsError: there is no Python in a folder
    """
    here = tuple(word for word in against if "=" not in word)
    found = [Environment(sys.executable, here)]
    for word in against:
        name, given, folder = word.partition("=")
        python = Path(folder, "bin", "python")
        if given and not python.exists():
            raise ResultsError(f"--against {word}: there is no {python}")
        if given:
            found.append(Environment(str(python.absolute()), (name,), own=False))
    return found


@contextlib.contextmanager
def folder_of(out: Path | None, asked: Any) -> Iterator[Path]:
    """Provide a folder for the results of the launches, which is removed when the block succeeds.

    Beside a file of results it has a fixed name, and stays if the block fails or the process is killed, so the same
    command can continue there. The folder of another command is removed.

    :param out: the file of results; None: nothing is kept
    :param asked: the request, as a JSON value
    :raises ResultsError: another process measures into this file now, or the folder cannot be written
    """
    if out is None:
        with _exit_by_sigterm(), tempfile.TemporaryDirectory(prefix="hpccoll-bench-") as made:
            yield Path(made)
        return
    folder = out.with_name(f"{out.name}.launches")
    knobs = {name: value for name, value in inherited.environment().items() if name.startswith(config.PREFIX)}
    knobs.pop(inherited.SECRET, None)
    same = [hpccoll.__version__, conditions.build(), conditions.revision(), asked, knobs]
    request, text = folder / "request.json", json.dumps(same, indent=1)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise ResultsError(f"{folder} could not be written: {error.strerror}") from None
    with _alone(lock, out):
        if not (request.exists() and request.read_text("utf-8") == text):
            _clear(folder)
            try:
                durable.write_text(request, text)
            except OSError as error:
                shutil.rmtree(folder, ignore_errors=True)
                raise ResultsError(f"{folder} could not be written: {error.strerror}") from None
        elif there := len(list(folder.glob("*.h5"))):
            print(f"hpccoll bench: goes on: {folder} keeps {there} results of launches", file=sys.stderr, flush=True)
        yield folder
        request.unlink(missing_ok=True)  # first: without it the rest is never reused
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _exit_by_sigterm() -> Iterator[None]:
    """Let SIGTERM end this process as `sys.exit` does, so that a temporary folder is removed."""

    def end(number: int, _: object) -> None:
        sys.exit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def _alone(fd: int, out: Path) -> Iterator[None]:
    """Keep other processes out of a folder, where the file system has locks.

    :param fd: of the file LOCK in the folder, which is closed at the end
    :raises ResultsError: another process is there
    """
    try:
        with contextlib.suppress(OSError):
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ResultsError(
                    f"{out}: another `hpccoll bench` measures into it now: wait, or give another file"
                ) from None
        yield
    finally:
        os.close(fd)


def _clear(folder: Path) -> None:
    """Remove what another command has left."""
    for there in folder.iterdir():
        if there.name != LOCK:
            shutil.rmtree(there) if there.is_dir() and not there.is_symlink() else there.unlink()


def measured(words: Sequence[str], launch: Launch, against: Sequence[str], folder: Path) -> Results:
    """Start all launches, the environments in turn, and merge their results.

    If only the revision has changed meanwhile, and not the build, the results have a warning: most often a text was
    edited, and they took minutes.

    :param words: the options of `hpccoll bench` for the ranks
    :param folder: for the results of each launch; a launch whose results exist is not started
    :raises ResultsError: a launch failed, or launches were of different versions
    """
    several, apart = [], environments(against)
    for number in range(launch.launches):
        for place, environment in enumerate(apart):
            file = folder / f"{number}-{place}.h5"
            if not file.exists():
                one(words, launch, environment, number * len(apart) + place, file)
            several.append(kept(files.read(file), environment))
    changed = results.differences(several) if len(apart) == 1 else {}
    is_edited = changed.keys() == {"revision"}
    whole = results.merged(several, mixed=len(apart) > 1 or is_edited)
    if is_edited:
        text = f"hpccoll was changed between launches (revision: {changed['revision']}): measure again if that matters"
        whole.launches[-1].setdefault("warnings", []).append(text)
    return whole


def one(words: Sequence[str], launch: Launch, environment: Environment, number: int, file: Path) -> None:
    """Run one job.

    :raises ResultsError: it failed; it has printed why
    """
    programs = Path(environment.python).parent
    command = [sys.executable, "-P", "-m", "hpccoll", "run"]
    if not environment.own and (programs / "mpirun").exists():  # the environment has its own MPI
        command += ["--launcher", str(programs / "mpirun")]
    command += ["-np", str(launch.ranks), "--nodes", launch.nodes, "--timeout", f"{launch.timeout:g}"]
    command += ["--", environment.python, "-P", "-m", "hpccoll", "bench", *words, "--in-job", "--quiet"]
    command += ["--expect", str(launch.ranks), "--number", str(number), "--out", str(file)]
    command += [f"--against={','.join(environment.peers)}"] if environment.peers else []
    variables = dict(inherited.environment())
    variables.setdefault("OMP_NUM_THREADS", "1")
    if not environment.own:
        variables["PATH"] = f"{programs}:{variables.get('PATH', '')}"
        variables["PYTHONPATH"] = str(only_hpccoll(file.parent))
    end_too = partial(end_with_parent, signal.SIGTERM)  # else the ranks would compute on beside what comes next
    with subprocess.Popen(command, env=variables, preexec_fn=end_too) as job:
        try:
            status = job.wait()
        except BaseException:
            job.terminate()  # it ends the ranks and removes its own files; the end of the block waits for it
            raise
    if status or not file.exists():
        raise ResultsError(f"launch {number} on {launch.ranks} ranks failed with status {status}, see above")


def only_hpccoll(folder: Path) -> Path:
    """Make a folder for PYTHONPATH with this hpccoll, without the packages beside it: the environment has its own."""
    made = folder / "path"
    made.mkdir(exist_ok=True)
    if not (made / "hpccoll").exists():
        (made / "hpccoll").symlink_to(Path(hpccoll.__file__).parent)
        about = made / f"hpccoll-{hpccoll.__version__}.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: hpccoll\nVersion: {hpccoll.__version__}\n")
    return made


def kept(measured: Results, environment: Environment) -> Results:
    """Keep only the peer's results of its environment: hpccoll was measured there, too, but over another MPI."""
    if environment.own:
        return measured
    cases = {key: case for key, case in measured.cases.items() if key.library not in ("hpccoll", "memcpy")}
    return Results(measured.launches, cases)
