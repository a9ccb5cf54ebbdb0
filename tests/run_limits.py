# SPDX-License-Identifier: Apache-2.0
"""A plugin of pytest: the time limits of tests grow with the load of the machine, and stop only the code of tests.

A limit ends a hang, and is meant for an idle machine. On a loaded machine everything takes longer, so the limit grows
with the load. pytest-timeout raises its exception at any place of the process. In pytest's own code, as while it writes
the report of a failed test, that ends the whole run. So the clock runs only during a test and its fixtures.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pytest_timeout import timeout_sigalrm

LONGEST = 900.0
"""Seconds; faulthandler_timeout in pyproject.toml, which ends a process, is longer."""
AGAINST_HANGS = 30.0
"""Seconds; a limit of a subprocess of at least this time ends a hang, a shorter one belongs to the test."""


def grown(seconds: float) -> float:
    """Return the limit under the present load, which grows as the share of a core per runnable process falls."""
    processes_per_core = os.getloadavg()[0] / len(os.sched_getaffinity(0))
    return min(seconds * max(1.0, processes_per_core), max(seconds, LONGEST))


# ---- tests -----------------------------------------------------------------------------------------


class Clock:
    """The limit of one test. conftest.uncounted() stops the same timer."""

    def __init__(self, item: pytest.Item, settings: Any) -> None:
        self.item, self.settings = item, settings
        self.given = self.left = float(settings.timeout)

    def start(self) -> None:
        signal.signal(signal.SIGALRM, self.ring)
        signal.setitimer(signal.ITIMER_REAL, self.left)

    def stop(self) -> None:
        self.left = signal.setitimer(signal.ITIMER_REAL, 0)[0]

    def ring(self, *_: object) -> None:
        __tracebackhide__ = True
        more = grown(float(self.settings.timeout)) - self.given
        if more > 0:
            self.given += more
            signal.setitimer(signal.ITIMER_REAL, more)
        else:
            timeout_sigalrm(self.item, self.settings)


CLOCK = pytest.StashKey[Clock]()


def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> bool:
    """Set our timer instead of pytest-timeout's, which also runs while pytest works."""
    item.stash[CLOCK] = Clock(item, settings)
    return True


def pytest_timeout_cancel_timer(item: pytest.Item) -> bool:
    signal.setitimer(signal.ITIMER_REAL, 0)
    return True


def counted(item: pytest.Item) -> Iterator[None]:
    clock = item.stash.get(CLOCK, None)
    if clock is None or clock.left <= 0:  # no limit, or it has passed: the end of the fixtures is not stopped again
        return (yield)
    clock.start()
    try:
        return (yield)
    finally:
        clock.stop()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    return (yield from counted(item))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    return (yield from counted(item))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    return (yield from counted(item))


# ---- processes that tests start --------------------------------------------------------------------


def patiently(wait: Callable[[float | None], Any], limit: float | None) -> Any:
    """Call `wait` until the limit under the present load has passed."""
    if limit is None or limit < AGAINST_HANGS:
        return wait(limit)
    began, left = time.monotonic(), limit
    while True:
        try:
            return wait(left)
        except subprocess.TimeoutExpired:
            left = grown(limit) - (time.monotonic() - began)
            if left <= 0:
                raise


class Popen(subprocess.Popen):
    """A process of a test; subprocess.run() uses it, too."""

    def communicate(self, input: Any = None, timeout: float | None = None) -> Any:  # noqa: A002 (subprocess's name)
        return patiently(lambda limit: super(Popen, self).communicate(input, limit), timeout)

    def wait(self, timeout: float | None = None) -> int:
        return patiently(lambda limit: super(Popen, self).wait(limit), timeout)


def pytest_configure(config: pytest.Config) -> None:
    plain = subprocess.Popen
    subprocess.Popen = Popen  # type: ignore[misc]
    config.add_cleanup(lambda: setattr(subprocess, "Popen", plain))
