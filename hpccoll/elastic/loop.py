# SPDX-License-Identifier: Apache-2.0
"""run(): calls a function of a state until it returns, even if ranks are lost or join meanwhile.

Each turn makes a World, takes the newest commit of any rank, and calls the function. A loss at any of these steps ends
the turn and starts another, which uses only commits.
"""

import contextlib
import functools
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from hpccoll import ending, errors, inherited
from hpccoll.default_world import current, init, is_initialized, place, shutdown
from hpccoll.elastic.interrupt import HostsUpdatedInterrupt
from hpccoll.elastic.own_errors import own_error
from hpccoll.elastic.state import State
from hpccoll.launch_protocol import Place
from hpccoll.rendezvous import coordinator

__all__ = ["run", "runner"]

P = ParamSpec("P")
T = TypeVar("T")
Function = Callable[Concatenate[Any, P], T]
RAISED = " has raised "
"""A text that a ShutDownError contains if its cause is an exception on another rank."""
ADDED, MIXED = 1, 3
"""Horovod's numbers for what has changed."""


def run(function: Function[P, T]) -> Function[P, T]:
    """Make a function elastic.

    The function is called with the state. If ranks are lost it is called again, by the ranks that are left, with the
    newest commit; if ranks come or leave, when each rank has called `state.commit()` or `state.check_host_updates()`
    after the same step. It must keep its progress in the state. `init()` need not be called before. A new rank comes in
    when it calls this; the others do not wait for its preparations.

    :param function: takes a State as its first argument
    :returns: a function of the same arguments, which returns what `function` returns
    :raises RecoverableError: a rank was lost in a job that is not elastic; a State with `path=` lets the next run of
        the job go on
    """
    return runner(init, shutdown)(function)


def runner(make: Callable[[], Any], end: Callable[[], Any]) -> Callable[[Function[P, T]], Function[P, T]]:
    """Make run() for a front end.

    :param make: makes the default World
    :param end: ends it
    """

    def decorate(function: Function[P, T]) -> Function[P, T]:
        @functools.wraps(function)
        def elastic(state: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
            with _Turns(state, make, end) as turns:
                while True:
                    try:
                        turns.begin()
                        result = function(state, *args, **kwargs)
                        state.end()
                        return result
                    except (errors.HpccollError, HostsUpdatedInterrupt) as error:
                        turns.mend(error)
                    except Exception as error:
                        ours = own_error(error)  # what a compiled program raises has the text of the library's error
                        if ours is None:
                            raise
                        turns.mend(ours)

        return elastic

    return decorate


class _Turns:
    """The attempts of one call of a training function: each change of the ranks begins another one."""

    def __init__(self, state: State, make: Callable[[], Any], end: Callable[[], Any]) -> None:
        self.state, self.make, self.end = state, make, end
        self.job = coordinator.of_process(inherited.environment())
        self.first = True
        self.handler: Any = None

    def __enter__(self) -> Self:
        if self.job:
            self.job.on_change, self.job.comes = self._tell, True
            if (
                threading.current_thread() is threading.main_thread()
                and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
            ):
                self.handler = signal.signal(signal.SIGTERM, self._on_sigterm)
        self.state.begin()
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, SystemExit) and error.code and self.job:
            ending.exits_by(error)  # the others go on without this rank, as after another exception
        if self.handler is not None:
            signal.signal(signal.SIGTERM, self.handler)
        if self.job:
            self.job.on_change = lambda _adds_only: None

    def begin(self) -> None:
        """Make the World, and take the newest commit."""
        told = self._end_world_apart()
        self.make()
        if not self.first or (told and (told.rank, told.size) != (current().rank, current().size)):
            self.state.on_reset()
        elif told:
            self.state.reset()  # what the program has made so far was for a World of one rank
        self.state.synchronize()
        self.first = False
        if self.job:
            self.job.has_state = True
            if self.job.changing == self.job.generation:
                self._tell(adds_only=False)

    def _end_world_apart(self) -> Place | None:
        """End the World that init() has given to a new rank before run().

        :returns: what rank() and size() have said; None: there is no such World
        """
        told = place() if is_initialized() else None
        if not isinstance(told, Place):
            return None
        self.end()
        return told

    def mend(self, error: Exception) -> None:
        """Leave a World that is lost or about to change; raise the error if a new World would not help."""
        self.first = False
        if isinstance(error, HostsUpdatedInterrupt):
            if not self.job:
                raise error
        elif not self._is_mended_by_another_world(error):
            raise error
        elif not self.job:
            error.add_note(_without_a_job(self.state))
            raise error
        else:
            self.job.lost = current().lost_ranks() if is_initialized() else {}
            self.job.tell(f"leaves generation {self.job.generation}: {error}")
        with contextlib.suppress(errors.HpccollError):  # the failure is known
            self.end()
        if not isinstance(error, HostsUpdatedInterrupt):
            self.state.restore()

    def _is_mended_by_another_world(self, error: Exception) -> bool:
        """Return whether a new World helps: a rank was lost, was ended by an exception, or has left for a change."""
        if isinstance(error, errors.ShutDownError) and self.job:
            return self.job.changing == self.job.generation or RAISED in str(error)
        return isinstance(error, errors.RecoverableError)

    # ---- in other threads, and in a signal handler -----------------------------------------------------

    def _tell(self, adds_only: bool) -> None:
        """Set the bit that all ranks see at the same position of the log (as preemption does)."""
        self.state.on_hosts_updated(time.time(), ADDED if adds_only else MIXED)
        with contextlib.suppress(errors.HpccollError):
            current().core.preempt()

    def _on_sigterm(self, _number: int, _frame: object) -> None:
        """At the first SIGTERM, request to leave after this step; at the second one, end the process.

        Without a launcher the first one ends it.
        """
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if self.job and not self.job.leave():
            os.kill(os.getpid(), signal.SIGTERM)


def _without_a_job(state: State) -> str:
    durable = f" The next run of the job goes on from {state.path}." if state.path else ""
    return (
        "hpccoll: under this launcher a job cannot go on without a rank: start it with `hpccoll run --min-np`, or give "
        f"the State a path= to begin again from.{durable}"
    )
