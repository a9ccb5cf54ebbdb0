# SPDX-License-Identifier: Apache-2.0
"""Registers questions, and turns answers into values for JSON."""

import importlib
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from mpi4py import MPI

Answer = Any
"""A value for JSON: numbers, strings, lists, dictionaries."""
CAUGHT = (ValueError, RuntimeError, TypeError, AssertionError, NotImplementedError)
DTYPES = ("int32", "int64", "float16", "float32", "float64", "uint8", "int8", "int16", "bool", "bfloat16")
OPS = ("Average", "Sum", "Min", "Max", "Product")

QUESTIONS: dict[str, Callable[[], Any]] = {}
hvd: Any = importlib.import_module(sys.argv[1])
RANK, SIZE = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size


def ask(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a question; with names, one question per name, which gets the name."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in names or ("",):
            title = function.__name__.replace("_", " ") + (f": {name}" if name else "")
            QUESTIONS[title] = (lambda name=name: function(name)) if name else function
        return function

    return add


def tensor(*shape: int, dtype: str = "float32", seed: int = 0) -> torch.Tensor:
    """Make a tensor of small whole numbers of this rank, also negative ones, so that no sum is rounded."""
    values = torch.tensor(np.random.default_rng([seed, RANK]).integers(-4, 5, shape))
    return (values.abs() if dtype in ("uint8", "bool") else values).to(getattr(torch, dtype))


def plain(value: Any) -> Answer:
    """Return the facts about a value that a program can see."""
    match value:
        case torch.Tensor() if value.is_sparse:
            return {"sparse": plain(value.to_dense())}
        case torch.Tensor():
            return {"dtype": str(value.dtype), "shape": [*value.shape], "values": value.tolist()}
        case list() | tuple():
            return {type(value).__name__: [plain(one) for one in value]}
        case dict():
            return {str(key): plain(one) for key, one in value.items()}
        case bool() | None | str() | float():
            return value
        case int():
            return int(value)
    return type(value).__name__


def answer(question: Callable[[], Any]) -> Answer:
    try:
        return plain(question())
    except Exception as error:  # noqa: BLE001
        return {"raises": caught_as(error)}


def caught_as(error: Exception) -> list[str]:
    """Return the names of the classes by which the error can be caught; unexpected errors have their own name."""
    names = [one.__name__ for one in CAUGHT if isinstance(error, one)]
    names += ["HorovodInternalError"] * isinstance(error, hvd.HorovodInternalError)
    return names or [type(error).__name__]
