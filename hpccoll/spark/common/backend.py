# SPDX-License-Identifier: Apache-2.0
"""SparkBackend: how an estimator starts its ranks, under Horovod's name."""

from collections.abc import Mapping, Sequence
from typing import Any

from hpccoll.errors import InvalidArgumentError

__all__ = ["SparkBackend"]

WITHOUT_EFFECT = (
    "use_mpi", "use_gloo", "extra_mpi_args", "stdout", "stderr", "verbose", "prefix_output_with_timestamp",
)  # fmt: skip


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
        :param without_effect: Horovod's `use_mpi`, `use_gloo`, `extra_mpi_args`, `stdout`, `stderr`, `verbose` and
            `prefix_output_with_timestamp`: the ranks meet without MPI, and what they print is in the logs of the
            executors
        :raises InvalidArgumentError: (a ValueError) there is another argument
        """
        for name in without_effect:
            if name not in WITHOUT_EFFECT:
                raise InvalidArgumentError(f"SparkBackend has no parameter {name}")
        self.num_proc, self.env, self.start_timeout, self.nics = num_proc, env, start_timeout, nics
        self.executable = executable

    def settings(self, env: Mapping[str, str] | None = None) -> Any:
        """Return the settings of hpccoll.spark.driver.start_on_rows.

        :param env: further variables
        """
        return self.start_timeout, {**(self.env or {}), **(env or {})}, self.nics, self.executable
