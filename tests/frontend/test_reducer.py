# SPDX-License-Identifier: Apache-2.0
"""The reducer by itself: it counts gradients and returns buckets; nothing is started here."""

import threading

import pytest

from hpccoll.frontend.buckets import Bucket, one_bucket_each
from hpccoll.frontend.reducer import Reducer

A, BC, D = Bucket("a", (0,)), Bucket("b and 1 more", (1, 2)), Bucket("d", (3,))


def test_a_bucket_is_complete_after_the_last_pass_of_its_last_member():
    reducer = Reducer([A, BC, D], 2)
    returned = [reducer.computed(member) for member in (1, 0, 2, 0, 1, 2)]
    assert returned == [None, None, None, A, None, BC]
    assert reducer.active


def test_the_others_are_missing_if_one_of_their_members_is_wanted():
    reducer = Reducer([A, BC, D], 1)
    assert reducer.computed(0) is A
    reducer.started(A, "in flight")
    assert reducer.missing(lambda member: member in (0, 2)) == [BC]
    assert reducer.missing(lambda member: True) == [BC, D]
    reducer.started(BC, "too")
    assert reducer.take_pending() == ["in flight", "too"]
    assert reducer.take_pending() == []


def test_a_step_begins_anew():
    reducer = Reducer([A], 1)
    assert reducer.computed(0) is A
    reducer.started(A, "in flight")
    reducer.reset()
    assert not reducer.active
    assert reducer.missing(lambda member: True) == [A]
    assert reducer.computed(0) is A


def test_a_pass_too_many_and_changes_on_the_way():
    reducer = Reducer(one_bucket_each(["a"]), 1)
    reducer.computed(0)
    with pytest.raises(AssertionError, match="more than backward_passes_per_step times"):
        reducer.computed(0)
    with pytest.raises(AssertionError, match="being reduced"):
        reducer.set_passes(2)
    with pytest.raises(AssertionError, match="being reduced"):
        reducer.add([D])
    reducer.reset()
    with pytest.raises(ValueError, match="backward_passes_per_step is 0"):
        reducer.set_passes(0)
    reducer.add([D])
    assert reducer.missing(lambda member: True)[1] is D


def test_every_bucket_is_returned_once_whatever_threads_compute():
    """A framework may compute gradients in one thread per device."""
    buckets = [Bucket(str(i), (2 * i, 2 * i + 1)) for i in range(200)]
    reducer = Reducer(buckets, 1)
    returned = [[], []]
    threads = [
        threading.Thread(target=lambda t=t: returned[t].extend(reducer.computed(2 * i + t) for i in range(200)))
        for t in (0, 1)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(b.name for part in returned for b in part if b) == sorted(b.name for b in buckets)
