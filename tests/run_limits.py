# SPDX-License-Identifier: Apache-2.0
"""A plugin of pytest: the time limits of tests follow the load of the machine, and stop only code of a test.

A limit is there to end a hang, and is meant for a machine that has nothing else to do. On a loaded one everything takes
longer, so a limit that has passed is compared with the load, and grows with it. pytest-timeout raises its exception
wherever the process is at that moment. In pytest's own code, as while it writes the report of a failed test, that ends
the whole run; so the clock runs only during a test's fixtures and the test.
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
"""Seconds; a limit of a subprocess from here on ends a hang, a shorter one is part of what a test looks at."""


def grown(seconds: float) -> float:
    """Return the limit under the present load: the share of a core that each runnable process gets."""
    processes_per_core = os.getloadavg()[0] / len(os.sched_getaffinity(0))
    return min(seconds * max(1.0, processes_per_core), max(seconds, LONGEST))


# ---- tests -----------------------------------------------------------------------------------------


class Clock:
    """The limit of one test. A part that conftest.uncounted() leaves out stops the same timer of the system."""

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
    """Instead of pytest-timeout's own timer, which runs while pytest works, too."""
    item.stash[CLOCK] = Clock(item, settings)
    return True


def pytest_timeout_cancel_timer(item: pytest.Item) -> bool:
    signal.setitimer(signal.ITIMER_REAL, 0)
    return True


def counted(item: pytest.Item) -> Iterator[None]:
    clock = item.stash.get(CLOCK, None)
    if clock is None or clock.left <= 0:  # no limit, or one that has passed: the fixtures' ends are not stopped again
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
    """Call `wait` until a limit against hangs has passed under the load that there is then."""
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
