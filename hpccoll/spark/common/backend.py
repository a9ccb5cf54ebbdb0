# SPDX-License-Identifier: Apache-2.0
"""SparkBackend: how an estimator starts its ranks, under Horovod's name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["SparkBackend"]


class SparkBackend:
    """The ranks of an estimator: their number, variables and interfaces."""

    def __init__(
        self,
        num_proc: int | None = None,
        env: Mapping[str, str] | None = None,
        *,
        start_timeout: float | None = None,
        nics: str | Sequence[str] | None = None,
        executable: str | None = None,
        **without_effect: Any,
    ) -> None:
        """Describe them; see hpccoll.spark.run.

        :param num_proc: how many ranks; None: `spark.default.parallelism`
        :param without_effect: Horovod's `use_mpi`, `use_gloo`, `stdout`, `stderr`, `verbose` and
            `prefix_output_with_timestamp`: the ranks meet without MPI, and what they print is in the logs of the
            executors
        """
        del without_effect
        self.num_proc, self.env, self.start_timeout, self.nics = num_proc, env, start_timeout, nics
        self.executable = executable

    def settings(self, env: Mapping[str, str] | None = None) -> Any:
        """Return the settings of hpccoll.spark.driver.start_on_rows.

        :param env: further variables
        """
        return self.start_timeout, {**(self.env or {}), **(env or {})}, self.nics, self.executable
