# SPDX-License-Identifier: Apache-2.0
"""Allocation, and the choice of vector code."""

import ctypes
from typing import Any

import pytest

INVALID = -8


def test_the_best_set_is_chosen(build: Any) -> None:
    assert build.select("auto") == 0
    assert build.name() == build.sets[0]


def test_a_set_by_name(build: Any) -> None:
    for name in build.sets:
        assert build.select(name) == 0
        assert build.name() == name


@pytest.mark.parametrize("name", ["", "sse9", "AVX2", "hc__kernels"])
def test_an_unknown_name_changes_nothing(build: Any, name: str) -> None:
    assert build.select("portable") == 0
    assert build.select(name) == INVALID
    assert build.name() == "portable"


@pytest.mark.parametrize("size", [0, 1, 63, 4096, (4 << 20) - 1, 4 << 20, 9 << 20])
def test_results_are_aligned_and_writable(build: Any, size: int) -> None:
    result = build.library.hc_result_new(size)
    assert result
    assert result % 64 == 0
    ctypes.memset(result, 0x5A, size)
    build.library.hc_result_free(result)


def test_no_memory_is_said(build: Any) -> None:
    assert build.library.hc_result_new(2**64 - 1) is None
    assert build.library.hc_result_new(2**62) is None
    build.library.hc_result_free(None)


def test_copy(build: Any) -> None:
    source, to = ctypes.create_string_buffer(b"seventeen bytes!!"), ctypes.create_string_buffer(20)
    build.library.hc_host_copy(to, source, 17)
    assert to.raw == b"seventeen bytes!!\0\0\0"
    build.library.hc_host_copy(None, None, 0)
