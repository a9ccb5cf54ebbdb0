# SPDX-License-Identifier: Apache-2.0
"""The hosts of an elastic job, from a script that prints them: `host` or `host:slots`, one per line."""

import subprocess
import threading
from collections.abc import Callable

from hpccoll.tools.launch.job import LaunchError, parse_hosts
from hpccoll.tools.launch.processes import EndlessAnswerError, answer_of, say

EVERY = 1.0
"""Seconds between two calls of the script."""
LONGEST = 60.0
"""Seconds that a call may take."""


class TooSlowError(LaunchError):
    """The script has not ended in time."""


def ask(script: str, slots: int, seconds: float = float("inf")) -> dict[str, int]:
    """Call the script.

    :param slots: of a host without a number
    :param seconds: that it may take, if that is less than LONGEST
    :returns: the slots of each host, in the order of the lines
    :raises LaunchError: the script failed, or printed something else
    """
    try:
        done = answer_of(script, min(LONGEST, seconds))
    except subprocess.TimeoutExpired as slow:
        raise TooSlowError(f"--host-discovery-script {script}: it has not ended after {slow.timeout:g} s") from None
    except (UnicodeDecodeError, EndlessAnswerError) as error:
        raise LaunchError(f"--host-discovery-script {script}: {error}") from None
    if done.returncode:
        raise LaunchError(
            f"--host-discovery-script {script}: exit status {done.returncode}: {done.stderr.strip()[-200:]}"
        )
    found: dict[str, int] = {}
    for line in filter(None, (line.partition("#")[0].strip() for line in done.stdout.splitlines())):
        hosts = parse_hosts(line if ":" in line else f"{line}:{slots}")
        if len(hosts) > 1:
            raise LaunchError(f"--host-discovery-script {script}: {line!r} has several hosts: print one per line")
        found[hosts[0].name] = hosts[0].slots
    return found


class Discovery:
    """Calls the script each second, in a thread."""

    def __init__(
        self, script: str, slots: int, changed: Callable[[dict[str, int]], None], seconds: float = float("inf")
    ) -> None:
        """Call it the first time.

        :param changed: called with the hosts when they differ from the last ones
        :param seconds: that the first call may take
        :raises LaunchError: the first call failed
        """
        self._script, self._slots, self._changed = script, slots, changed
        self.hosts = ask(script, slots, seconds)
        self._stop = threading.Event()

    def begin(self) -> None:
        """Start to call it repeatedly."""
        threading.Thread(target=self._watch, name="hpccoll discovery", daemon=True).start()

    def end(self) -> None:
        """Stop to call it."""
        self._stop.set()

    def _watch(self) -> None:
        reported = ""
        while not self._stop.wait(EVERY):
            try:
                now = ask(self._script, self._slots)
            except LaunchError as error:
                if str(error) != reported:
                    reported = str(error)
                    say(f"{reported}; the hosts stay as they are, and it is called again")
                continue
            reported = ""
            if now != self.hosts:
                self.hosts = now
                self._changed(now)
