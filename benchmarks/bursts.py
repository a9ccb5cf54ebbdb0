# SPDX-License-Identifier: Apache-2.0
"""A job that measures on request, and sleeps in between; in before_after.py two of them take turns.

Each rank has a Unix socket to the other program, with a JSON value per line. The rank sends a description of itself,
then of each case. For each request it sends what it measured; a request for 0 repetitions ends the case. null means
that there are no more cases.
"""

import contextlib
import json
import socket
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NoReturn, Protocol, TypeVar


class Case(Protocol):
    variant: str
    label: str
    bytes: int
    verify: Callable[[], None]


C = TypeVar("C", bound=Case)


def serve(
    address: str,
    hello: object,
    cases: Iterable[C],
    measure: Callable[[C, int, int], object],
) -> None:
    """Serve the rank's end: verify each case, and measure it on request.

    :param measure: gets a case, the calls of a repetition, and the number of repetitions
    """
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        lines = connection.makefile("rw")

        def answer(message: object) -> None:
            lines.write(json.dumps(message) + "\n")
            lines.flush()

        answer(hello)
        for case in cases:
            case.verify()
            answer({"variant": case.variant, "label": case.label, "bytes": case.bytes})
            while (order := json.loads(lines.readline()))["repetitions"]:
                answer(measure(case, order["inner"], order["repetitions"]))
        answer(None)


class Job:
    """The other end: it starts the ranks by a command, and their programs get the option --bursts SOCKET."""

    def __init__(self, command: list[str], variables: dict[str, str], ranks: int, folder: Path, timeout: float) -> None:
        self.log = folder / f"{id(self)}.log"
        address = str(self.log.with_suffix(".socket"))
        with socket.socket(socket.AF_UNIX) as server, self.log.open("w") as log:
            server.bind(address)
            server.listen(ranks)
            server.settimeout(1)
            self.process = subprocess.Popen(
                [*command, "--bursts", address], env=variables, stdout=log, stderr=subprocess.STDOUT
            )
            self.lines = [self._accept(server, timeout) for _ in range(ranks)]

    def _accept(self, server: socket.socket, timeout: float) -> Any:
        while True:
            with contextlib.suppress(TimeoutError):
                connection, _ = server.accept()
                connection.settimeout(timeout)
                return connection.makefile("rw")
            if self.process.poll() is not None:
                self.fail("it ended at once")

    def announced(self) -> list[Any]:
        """Read each rank's next description: of itself, then of its current case; None: there are no more cases."""
        try:
            return [json.loads(lines.readline()) for lines in self.lines]
        except (OSError, json.JSONDecodeError) as error:
            self.fail(f"a rank does not answer ({error})")

    def measure(self, inner: int, repetitions: int) -> Any:
        """Return what rank 0 measured in repetitions of `inner` calls."""
        self._order(inner, repetitions)
        return self.announced()[0]

    def go_on(self) -> None:
        """Let the ranks continue with their next case."""
        self._order(0, 0)

    def _order(self, inner: int, repetitions: int) -> None:
        for lines in self.lines:
            lines.write(json.dumps({"inner": inner, "repetitions": repetitions}) + "\n")
            lines.flush()

    def end(self) -> None:
        """Wait until the command has ended with status 0."""
        if self.process.wait():
            self.fail(f"exit status {self.process.returncode}")

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait()

    def fail(self, why: str) -> NoReturn:
        self.stop()
        raise SystemExit(f"{' '.join(self.process.args)}: {why}\n{self.log.read_text()}")
