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
    if can.disagrees and not can.derives:
        refusals(job, mode, strategies.disagreements(job.ranks, can), many)


def misuses(job: Job, mode: str, many: settings) -> None:
    """Check that every rank gets an error for a wrong argument, and that the next program has the expected results."""
    can = job.modes[mode]
    if can.misuses:
        refusals(job, mode, strategies.misuses(job.ranks, can), many)


def refusals(job: Job, mode: str, wrong: st.SearchStrategy[Program], many: settings) -> None:
    @many
    @given(st.tuples(wrong, strategies.programs(job.ranks, job.modes[mode])))
    def check(both: tuple[Program, Program]) -> None:
        job.check_refused(mode, both[0])
        job.check(mode, both[1])

    check()


ALL = (results, disagreements, misuses)
