# SPDX-License-Identifier: Apache-2.0
"""The gate's table of functions, called from C as the kernel of a framework calls it."""

import pytest


@pytest.mark.timeout(300)
def test_every_operation_and_what_is_refused(build_c, run_c, library):
    assert run_c(build_c("tests/gate/gate.c", *library), timeout=120) == "fine\n"
