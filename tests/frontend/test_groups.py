# SPDX-License-Identifier: Apache-2.0
"""Groups of gradients."""

from types import SimpleNamespace

import numpy as np
import pytest

import hpccoll
import hpccoll.horovod as hvd
from hpccoll.frontend.groups import (
    Variables,
    check_members,
    checked_groups,
    compare_groups_once,
    divided,
    group_name,
    members_of,
)
from hpccoll.frontend.process_sets import world_of

A, B, C = (SimpleNamespace(name=name, shape=(2,)) for name in "abc")


def checked(groups):
    return checked_groups(groups, Variables("tf.Variable", lambda one: hasattr(one, "shape")))


def horovod_split(members, parts):
    """Horovod's rule: as many in each group, and one more in the first `rest` ones."""
    each, rest = divmod(len(members), parts)
    sizes = [each + (part < rest) for part in range(parts)]
    return [members[sum(sizes[:part]) : sum(sizes[: part + 1])] for part in range(parts) if sizes[part]]


def test_numbers_divide_as_in_horovod():
    for count in range(12):
        for parts in range(1, 14):
            assert divided(range(count), parts) == horovod_split(list(range(count)), parts)
    assert divided([4, 2, 9], 2) == [[4, 2], [9]]


def test_members():
    numbers = {id(A): 3, id(B): 5, id(C): 8}
    assert members_of(None, numbers) == [[3], [5], [8]]
    assert members_of(2, numbers) == [[3, 5], [8]]
    assert members_of([[C, A], []], numbers) == [[8, 3], [5]]
    assert members_of([[A, B], [C]], {id(B): 0}) == [[0]]  # the others have no gradient
    assert members_of([[A]], {}) == members_of(3, {}) == []


def test_what_is_no_group():
    assert checked(None) is None
    assert checked(np.int64(3)) == 3
    assert checked(((A, B), (C,))) == [[A, B], [C]]
    for wrong in (0, -1, True, False, 1.5, "ab", [A], ["ab"], {1: [A]}):
        with pytest.raises(ValueError, match=r"groups should be a positive integer or a list of list of tf\.Variable"):
            checked(wrong)
    with pytest.raises(ValueError, match=r"groups must consist of tf\.Variable: 7 is in it"):
        checked([[A], [7]])
    with pytest.raises(ValueError, match="can only appear once in groups"):
        checked([[A, B], [A]])
    check_members([[A], [C]], {id(A), id(B), id(C)})
    check_members(2, set())
    with pytest.raises(ValueError, match=r"groups\[1\]\[0\], c, is none of the variables whose gradients"):
        check_members([[A], [C]], {id(A), id(B)})
    with pytest.raises(ValueError, match=r"groups\[0\]\[1\] is none of"):
        check_members([[A, SimpleNamespace()]], {id(A)})


def test_names_tell_groups_apart():
    assert group_name(["a"]) == "a"
    pairs = ["ab", "ac", "ba", "abc", "abd", "acb"]
    assert len({group_name(list(pair)) for pair in pairs}) == len(pairs)


@pytest.mark.mpi(min_size=2)
@pytest.mark.usefixtures("job")
def test_groups_are_compared_once():
    everyone, rank = hvd.global_process_set, hvd.rank()
    world = world_of(everyone)
    before = world.stats()["requests"]
    for _ in range(3):
        compare_groups_once("tape", [["a", "b"], ["c"]], everyone)
    assert world.stats()["requests"] - before == 1
    with pytest.raises(hpccoll.MismatchError, match=r"rank 0 has 'a b' where rank 1 has 'a c'"):
        compare_groups_once("tape", [["a", "b" if rank == 0 else "c"]], everyone)
    with pytest.raises(hpccoll.MismatchError, match=r"rank 0 has 1, rank 1 has 2"):
        compare_groups_once("tape", [["a"]] if rank == 0 else [["a"], ["d"]], everyone)
