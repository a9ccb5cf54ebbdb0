# SPDX-License-Identifier: Apache-2.0
"""What is checked of a mode, with as many random programs as the settings say."""

from differential import programs
from differential.job import Job
from hypothesis import given, settings
from hypothesis import strategies as st


def results(job: Job, mode: str, many: settings) -> None:
    """Programs, or their gradients, give what they must."""
    operations, dtypes, derives = job.modes[mode]
    chosen = programs.derivable if derives else programs.programs

    @many
    @given(chosen(job.ranks, operations, dtypes))
    def check(program: programs.Program) -> None:
        job.check(mode, program)

    check()


def disagreements(job: Job, mode: str, many: settings) -> None:
    """Where one rank differs, every rank gets an error; and the next program gives what it must."""
    operations, dtypes, derives = job.modes[mode]
    if derives:
        return
    differing = programs.disagreements(job.ranks, operations, dtypes)

    @many
    @given(st.tuples(differing, programs.programs(job.ranks, operations, dtypes)))
    def check(both: tuple[programs.Program, programs.Program]) -> None:
        job.check_refused(mode, both[0])
        job.check(mode, both[1])

    check()
