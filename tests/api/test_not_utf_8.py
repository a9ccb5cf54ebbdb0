# SPDX-License-Identifier: Apache-2.0
"""Texts of the program that UTF-8 cannot say reach the other ranks and the trace with question marks."""

import pytest
from test_jobs import INIT, job

pytestmark = [pytest.mark.timeout(180), pytest.mark.usefixtures("leaves_nothing_in_shm")]


def test_an_exception_that_utf_8_cannot_say_ends_the_others():
    """Its text has the byte of a path that is not in UTF-8 (os.fsdecode), and half of a surrogate pair of JSON."""
    script = INIT + "if rank == 1: raise ValueError('\\udcff \\ud800 mine')\nhpccoll.allreduce(np.ones(10))\n"
    status, output = job(2, script, stall_limit=30)
    assert status != 0
    assert "ShutDownError: the World has been shut down: rank 1 has raised ValueError: ? ? mine" in output, output


def test_a_file_whose_name_is_not_in_utf_8_may_make_calls():
    """For HPCCOLL_DEBUG the trace has the line of the program that makes a call."""
    lines = "code = compile('hpccoll.barrier()', '\\udcff.py', 'exec')\nexec(code)\nprint('fine', flush=True)\n"
    status, output = job(2, INIT + lines, debug=1)
    assert status == 0 and output.count("fine") == 2, output
