# SPDX-License-Identifier: Apache-2.0
"""Run the examples of the docstrings, as one of two ranks: `hpccoll run -np 2 python tests/docs/docstrings.py`."""

import doctest
import importlib
import sys

import numpy as np

import hpccoll
import hpccoll.io

MODULES = {
    "hpccoll", "hpccoll.reductions", "hpccoll.config", "hpccoll.compression", "hpccoll.errors", "hpccoll.stopping",
    "hpccoll.data.data_loader_base", "hpccoll.durable", "hpccoll.hdf5",
    *(value.__module__ for of in (hpccoll, hpccoll.io) for name in of.__all__ if callable(value := getattr(of, name))),
}  # fmt: skip


def examples() -> list[doctest.DocTest]:
    """Return the docstrings with examples, in an order that is the same on all ranks."""
    finder = doctest.DocTestFinder(exclude_empty=True)
    names = {"np": np, "hpccoll": hpccoll}
    found = [
        test
        for name in sorted(MODULES)
        for test in finder.find(importlib.import_module(name), name, globs=names)
        if test.examples
    ]
    return sorted(found, key=lambda test: test.name)


def main() -> int:
    """Run each example in a World of its own; a failure on one rank must not disturb the next example."""
    failed = 0
    for test in examples():
        hpccoll.init(verbose=0)
        runner = doctest.DocTestRunner()
        runner.run(test, clear_globs=False)
        failed += runner.failures
        hpccoll.shutdown()
    if hpccoll.inherited.environment().get("OMPI_COMM_WORLD_RANK", "0") == "0":
        print(f"{len(examples())} docstrings with examples")
    return failed


if __name__ == "__main__":
    sys.exit(main())
