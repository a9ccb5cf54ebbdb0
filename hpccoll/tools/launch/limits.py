# SPDX-License-Identifier: Apache-2.0
"""Names the limit of this process that stands against a job: its errors only say that a resource is not available."""

import contextlib
import errno
import platform
import resource
from collections.abc import Iterator

from hpccoll.tools.launch.job import LaunchError

FILES = (errno.EMFILE, errno.ENFILE)
NO_THREAD = "can't start new thread"
"""The text of Python's RuntimeError."""


@contextlib.contextmanager
def named() -> Iterator[None]:
    """Let the error of a limit say which one to raise.

    :raises LaunchError: this process may not start another process or thread, or open another file
    """
    try:
        yield
    except RuntimeError as error:
        if str(error) != NO_THREAD:
            raise
        raise LaunchError(_no_process("thread", NO_THREAD)) from None
    except OSError as error:
        text = error.strerror or str(error)
        if error.errno in FILES:
            raise LaunchError(
                f"host {platform.node()}: no other file can be opened ({text}): raise the limit of open files "
                f"({_limit('n', resource.RLIMIT_NOFILE)})"
            ) from None
        if error.errno == errno.ENOMEM or (error.errno == errno.EAGAIN and not hasattr(error, "characters_written")):
            raise LaunchError(_no_process("process", text)) from None  # not of a pipe that takes no more output
        raise


def _no_process(what: str, error: str) -> str:
    return (
        f"host {platform.node()}: no other {what} can be started ({error}): raise the limits of processes "
        f"({_limit('u', resource.RLIMIT_NPROC)}; pids.max of the cgroup) and of memory "
        f"({_limit('v', resource.RLIMIT_AS)}; memory.max)"
    )


def _limit(option: str, number: int) -> str:
    soft, _ = resource.getrlimit(number)
    return f"ulimit -{option}, now {'unlimited' if soft == resource.RLIM_INFINITY else soft}"
