# SPDX-License-Identifier: Apache-2.0
"""`hpccoll run` where the system gives no other file, process or thread: one line names the limit, and no traceback."""

import errno
import resource
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import NoReturn

import pytest

from hpccoll import StartError, channel
from hpccoll.rendezvous import coordinator
from hpccoll.tools.launch import limits
from hpccoll.tools.launch.job import LaunchError
from hpccoll.tools.launch.listener import LOOPBACK, Listener

RUN = [sys.executable, "-m", "hpccoll", "run"]
LAUNCHERS = [["-np", "2"], ["-np", "2", "--launcher", "ssh"], ["--min-np", "2", "-np", "2"]]


def no_thread(*_: object) -> NoReturn:
    raise RuntimeError("can't start new thread")


@pytest.mark.parametrize("options", LAUNCHERS)
def test_no_other_file(options: list[str]) -> None:
    """This user's limit is the hard one, too."""
    few: Callable[[], None] = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (7, 7))  # noqa: E731
    done = subprocess.run(
        [*RUN, *options, "true"], preexec_fn=few, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2, done.stderr
    assert "raise the limit of open files (ulimit -n, now 7)" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("options", LAUNCHERS)
def test_no_loopback(options: list[str], needs: Callable[..., None]) -> None:
    """A new network namespace has an interface lo, which is down."""
    needs("root", "unshare")
    words = ["unshare", "--net", *RUN, *options, "true"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2, done.stderr
    assert "`ip link set lo up`" in done.stderr and "127.0.0.1" in done.stderr
    assert done.stderr.count("\n") == 1, done.stderr


@pytest.mark.parametrize(
    ("error", "named"),
    [
        (OSError(errno.EMFILE, "Too many open files"), "ulimit -n, now "),
        (BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"), "ulimit -u, now "),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "ulimit -v, now "),
        (RuntimeError("can't start new thread"), "ulimit -u, now "),
    ],
)
def test_the_limit_is_named(error: Exception, named: str) -> None:
    with pytest.raises(LaunchError) as raised, limits.named():
        raise error
    assert named in str(raised.value) and str(error).rpartition("] ")[2] in str(raised.value)


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOENT, "gone"), RuntimeError("another"), BlockingIOError(11, "full", 3)]
)
def test_another_error_stays_as_it_is(error: Exception) -> None:
    with pytest.raises(type(error)) as raised, limits.named():
        raise error
    assert raised.value is error


def test_a_connection_that_gets_no_thread_is_reported_once(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with Listener([LOOPBACK], lambda _channel: None) as listener:
        monkeypatch.setattr(socketserver.ThreadingMixIn, "process_request", no_thread)
        with pytest.raises(OSError):
            channel.connect(listener.addresses, listener.secret, seconds=0.5)
    said = capfd.readouterr().err
    assert said.count("no other thread can be started") == 1 and said.count("\n") == 1, said


def test_a_rank_that_gets_no_thread_for_its_coordinator(monkeypatch: pytest.MonkeyPatch) -> None:
    def answers(connection: channel.Channel) -> None:
        connection.receive()
        connection.send(b"{}")
        time.sleep(0.1)

    with Listener([LOOPBACK], answers) as listener:
        text = listener.variable
        serving = threading.Thread.start
        monkeypatch.setattr(
            threading.Thread,
            "start",
            lambda thread: no_thread() if thread.name == "hpccoll coordinator" else serving(thread),
        )
        with pytest.raises(StartError, match="ulimit -u"):
            coordinator.Coordinator(text, 0, 5.0)
