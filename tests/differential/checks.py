# SPDX-License-Identifier: Apache-2.0
"""What is checked of a mode, with as many random programs as the settings say."""

from differential import strategies
from differential.job import Job
from differential.programs import Program
from hypothesis import given, settings
from hypothesis import strategies as st


def results(job: Job, mode: str, many: settings) -> None:
    """Programs, or their gradients, give what they must."""
    can = job.modes[mode]
    chosen = strategies.derivable if can.derives else strategies.programs

    @many
    @given(chosen(job.ranks, can))
    def check(program: Program) -> None:
        job.check(mode, program)

    check()


def disagreements(job: Job, mode: str, many: settings) -> None:
    """Where one rank differs, every rank gets an error; and the next program gives what it must."""
    can = job.modes[mode]
    if can.derives:
        return

    @many
    @given(st.tuples(strategies.disagreements(job.ranks, can), strategies.programs(job.ranks, can)))
    def check(both: tuple[Program, Program]) -> None:
        job.check_refused(mode, both[0])
        job.check(mode, both[1])

    check()
