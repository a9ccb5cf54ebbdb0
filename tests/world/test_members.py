# SPDX-License-Identifier: Apache-2.0
"""The nodes of a process set stand as those of the job, and the largest equal groups on one switch are found."""

import pytest

ADDRESSES = "s2/n4,s1/n1,s2/n3,s1/n2,s3/n6,s3/n5"


@pytest.mark.parametrize(
    ("addresses", "ranks", "printed"),
    [
        (ADDRESSES, "0,1,2,3,4,5", "3 0 2 1 5 4 group 2"),
        (ADDRESSES, "5,4,3,2,1,0", "4 5 1 2 0 3 group 2"),
        (ADDRESSES, "2,4,0", "0 2 1 group 1"),  # two nodes of a switch, one of another
        (ADDRESSES, "4,3", "1 0 group 1"),
        (ADDRESSES, "0,2", "1 0 group 0"),  # one switch
        (ADDRESSES, "3", "0 group 0"),
        ("a/1,a/2,a/3,a/4,b/1,b/2,c/1,c/2,c/3,c/4,c/5,c/6", "0,1,2,3,4,5,6,7,8,9,10,11",
         "6 7 8 9 10 11 0 1 2 3 4 5 group 2"),  # the largest switch first
        ("a/1,b/1,b/2,c/1,c/2,d/1", "0,1,2,3,4,5", "4 0 1 2 3 5 group 1"),
        ("a/1,b/1,b/2,c/1,c/2,d/1", "5,4,0,2,3", "4 2 3 0 1 group 1"),  # a set keeps the order of the job
        ("-,-,-", "2,0,1", "0 1 2 group 0"),  # by first appearance
    ],
)  # fmt: skip
def test_the_nodes_of_a_set(build_c, run_c, addresses, ranks, printed):
    program = build_c("tests/world/members.c", "ext/world/members.c", "ext/world/node_order.c")
    assert run_c(program, addresses, ranks).strip() == printed
