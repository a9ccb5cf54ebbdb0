# SPDX-License-Identifier: Apache-2.0
"""The section of ext/cython/hc.pxd: the codes that Cython knows by their names."""

from table import DTYPES, REDUCTIONS, STATUSES, TRAITS, fill


def codes() -> str:
    """The codes of the tables of ext/core/hc.h, and the traits of operations."""
    traits = dict.fromkeys(f"OP_{trait}" for row in TRAITS.values() for trait in sorted(row))
    tables = (DTYPES, REDUCTIONS, STATUSES, traits)
    # A list of Cython's ends with its line: each line is a list of its own.
    lines = (fill("    enum: ", [f"HC_{name}" for name in names], "", columns=119) for names in tables)
    return "\n".join(lines).replace(",\n          ", "\n    enum: ")


SECTIONS = {"codes": codes}
