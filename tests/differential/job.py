# SPDX-License-Identifier: Apache-2.0
"""A job of ranks that run programs for the test process, and the comparison of their results."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, Listener, wait
from pathlib import Path
from typing import Any, Self

from differential import drivers
from differential.oracle import difference, wanted
from differential.programs import Abilities, Program
from run_limits import grown

START_LIMIT = 240.0
LIMIT = 20.0
"""Seconds for one program on an idle machine; a hang is a finding."""


class Hung(AssertionError):
    """A rank did not answer; the job has been ended."""


class Job:
    """Ranks under the real launcher. Ranks that hang or fail are replaced by new ones."""

    def __init__(self, ranks: int, nodes: int, front_ends: Sequence[str], plant: str = "") -> None:
        self.ranks, self.nodes, self.front_ends, self.plant = ranks, nodes, tuple(front_ends), plant
        self.modes: dict[str, Abilities] = {}
        self.programs = 0
        """The number of programs that have run."""
        self.first: tuple[int, float] | None = None
        """The number of programs before the first wrong one, and its time."""
        self.when_wrong: Callable[[str], object] = lambda text: None
        """Called with the fault of a program, before a shorter program is searched."""
        self.folder = tempfile.TemporaryDirectory()
        self.process: subprocess.Popen[bytes] | None = None
        self.parts: dict[int, Connection] = {}
        self.output = tempfile.TemporaryFile()  # noqa: SIM115 - closed in __exit__

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self.output.close()
        self.folder.cleanup()

    def start(self) -> None:
        """Start the ranks, unless they run."""
        if self.process:
            return
        folder = Path(self.folder.name)
        for language in {each for front_end in self.front_ends for each in drivers.NEEDED.get(front_end, ())}:
            if not Path(folder, f"{language}.so").exists():
                drivers.build(language, folder, self.plant)
        with tempfile.TemporaryDirectory() as short, Listener(str(Path(short, "socket"))) as listener:
            program = Path(__file__).with_name("rank.py")
            self.process = subprocess.Popen(
                [
                    sys.executable, "-m", "hpccoll", "run", "-np", str(self.ranks), "--nodes", str(self.nodes),
                    sys.executable, str(program), str(listener.address), ",".join(self.front_ends),
                ],
                env=os.environ | {
                    "DIFFERENTIAL_PLANT": self.plant, "DIFFERENTIAL_DRIVERS": str(folder),
                    "JAX_ENABLE_X64": "1", "CUDA_VISIBLE_DEVICES": "",
                    "TF_CPP_MIN_LOG_LEVEL": "3", "HPCCOLL_STALL_LIMIT": "8",
                },
                stdout=self.output, stderr=subprocess.STDOUT, cwd=self.folder.name,
            )  # fmt: skip
            for _ in range(self.ranks):
                self.accept(listener)

    def accept(self, listener: Listener) -> None:
        """Take the connection of one rank."""
        socket, limit = listener._listener._socket, time.monotonic() + START_LIMIT  # type: ignore[attr-defined]
        while not wait([socket], 0.5):
            if time.monotonic() > limit or not self.process or self.process.poll() is not None:
                raise Hung(f"the ranks did not start:\n{self.said()}")
        part = listener.accept()
        rank, self.modes = part.recv()
        self.parts[rank] = part

    def said(self) -> str:
        """Return the output of the ranks."""
        self.output.seek(0)
        return self.output.read().decode(errors="replace")[-4000:]

    def stop(self) -> None:
        """End the ranks, also if they hang."""
        for part in self.parts.values():
            part.close()
        self.parts = {}
        if self.process:
            self.process.terminate()
            self.process.wait(60)
        self.process = None

    def answers(self, mode: str, program: Program) -> dict[int, tuple[str, Any]]:
        """Run a program; return the answer of each rank."""
        self.start()
        self.programs += 1
        for part in self.parts.values():
            part.send((mode, program))
        answers: dict[int, tuple[str, Any]] = {}
        try:
            for rank, part in self.parts.items():
                if not answers_in_time(part):
                    raise Hung(f"{mode}: rank {rank} of {self.ranks} did not answer\n{program}\n{self.said()}")
                answers[rank] = part.recv()
        except (Hung, EOFError, OSError) as error:
            said = self.said()
            self.stop()
            raise self.wrong(f"{mode}: {error}\n{program}\n{said}") from None
        return answers

    def wrong(self, text: str) -> AssertionError:
        """Return the error with this text."""
        self.first = self.first or (self.programs, time.monotonic())
        self.when_wrong(text)
        return AssertionError(text)

    def check(self, mode: str, program: Program) -> None:
        """Run a program, and compare the results of every rank with the expected ones.

        :raises AssertionError: a rank raised, hung, or has another result
        """
        can = self.modes[mode]
        for rank, (kind, value) in sorted(self.answers(mode, program).items()):
            if kind == "error":
                self.stop()
                raise self.wrong(f"{mode}, rank {rank} of {self.ranks}: {value}\n{program}")
            for turn, results in enumerate(value):
                for call, got in zip(program.calls, results, strict=True):
                    want = wanted(call, self.ranks, turn, can)[rank]
                    if wrong := difference(call, got, want):
                        raise self.wrong(
                            f"{mode}, rank {rank} of {self.ranks}, turn {turn}: {call}\n{wrong}\nin {program}"
                        )

    def check_refused(self, mode: str, program: Program) -> None:
        """Run a program in which one rank differs, or all ranks are wrong: every rank must get an error."""
        answers = self.answers(mode, program)
        if silent := [rank for rank, (kind, _) in answers.items() if kind != "error"]:
            self.stop()
            raise self.wrong(f"{mode}: ranks {silent} of {self.ranks} got results\n{answers}\n{program}")


def answers_in_time(part: Connection) -> bool:
    """Wait for an answer, as long as the load of the machine allows."""
    began = time.monotonic()
    while not part.poll(1.0):
        if time.monotonic() - began > grown(LIMIT):
            return False
    return True
