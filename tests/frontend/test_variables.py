# SPDX-License-Identifier: Apache-2.0
"""The comparison of variables before the root's values go to all ranks."""

import re

import pytest

import hpccoll
import hpccoll.horovod as hvd
from hpccoll.frontend.variables import compare_variables

pytestmark = [pytest.mark.mpi(min_size=2), pytest.mark.usefixtures("job")]
USUAL = ["float32[2]", "int64[]"]


@pytest.mark.parametrize(
    ("of_rank_1", "says"),
    [
        (USUAL, ""),
        (["float32[3]", "int64[]"], "variable 0 (w here) is float32[2] on rank 0 and float32[3] on rank 1;"),
        (USUAL[:1], "variable 1 (n here) is int64[] on rank 0 and missing on rank 1, of 2 and 1 variables;"),
        ([*USUAL, "bool[]"], "variable 2 is missing on rank 0 and bool[] on rank 1, of 2 and 3 variables;"),
    ],
)
def test_the_first_difference_is_named_on_all_ranks(of_rank_1, says):
    mine = of_rank_1 if hvd.rank() == 1 else USUAL

    def compare():
        compare_variables("broadcast_variables", mine, "of the test", hvd.global_process_set, here=["w", "n"])

    if not says:
        compare()
        return
    with pytest.raises(hpccoll.MismatchError, match=f"broadcast_variables: {re.escape(says)}"):
        compare()


def test_another_root_is_named_on_all_ranks():
    def compare():
        root = 9 if hvd.rank() == 1 else 0
        compare_variables("broadcast_variables", USUAL, "of the test", hvd.global_process_set, root_rank=root)

    with pytest.raises(hpccoll.MismatchError, match="broadcast_variables: root_rank is 0 on rank 0 and 9 on rank 1"):
        compare()
