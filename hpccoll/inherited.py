# SPDX-License-Identifier: Apache-2.0
"""The environment that the process has inherited. No other file of the package reads it; `config` asks here.

It imports nothing of hpccoll: a launcher, which needs no knobs, starts without NumPy and the core.
"""

import os
from collections.abc import Mapping

__all__ = ["SECRET", "environment", "publish", "secret"]

SECRET = "HPCCOLL_SECRET"
"""The only variable with the prefix of the knobs that is no knob: it is never shown or sent to other ranks."""


def environment() -> Mapping[str, str]:
    """Return the environment of the process, for code that reads variables of schedulers and launchers."""
    return os.environ


def publish(name: str, value: str) -> None:
    """Set a variable of the environment, for the program that uses hpccoll."""
    os.environ[name] = value


def secret() -> str:
    """Return the secret of this job, which authenticates its ranks; "" if it has none."""
    return os.environ.get(SECRET, "")
