# SPDX-License-Identifier: Apache-2.0
"""The checks of a mode, with the number of random programs of the settings."""

from differential import strategies
from differential.job import Job
from differential.programs import Program
from hypothesis import given, settings
from hypothesis import strategies as st


def results(job: Job, mode: str, many: settings) -> None:
    """Check that programs, or their gradients, give the expected results."""
    can = job.modes[mode]
    chosen = strategies.derivable if can.derives else strategies.programs

    @many
    @given(chosen(job.ranks, can))
    def check(program: Program) -> None:
        job.check(mode, program)

    check()


def disagreements(job: Job, mode: str, many: settings) -> None:
    """Check that every rank gets an error if one rank differs, and that the next program has the expected results."""
    can = job.modes[mode]
    if can.derives:
        return

    @many
    @given(st.tuples(strategies.disagreements(job.ranks, can), strategies.programs(job.ranks, can)))
    def check(both: tuple[Program, Program]) -> None:
        job.check_refused(mode, both[0])
        job.check(mode, both[1])

    check()
