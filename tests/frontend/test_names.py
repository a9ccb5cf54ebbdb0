# SPDX-License-Identifier: Apache-2.0
"""Names that tell equal ones apart."""

from hpccoll.frontend import names


def test_no_two_calls_have_one_name():
    given = ["x", "x (2)", "x (2) (1)", "x_1", "x (02)", "x (in f)", "(2)", " (2)", ""]
    made = [names.occurrence(name, number) for name in given for number in range(1, 4)]
    assert len(set(made)) == len(made), made


def test_the_first_call_keeps_its_name():
    assert [names.occurrence("loss", number) for number in (1, 2, 3)] == ["loss", "loss (2)", "loss (3)"]
