# SPDX-License-Identifier: Apache-2.0
"""The sections of hpccoll.h, which are enums and prototypes, and of ext/api/operations.c, which are the functions."""

from table import (
    ALL,
    CODES,
    COLLECTIVES,
    COMMENTS,
    DTYPES,
    GRIDS,
    MESSAGES,
    OPERATIONS,
    PARAMETERS,
    REDUCTIONS,
    STATUSES,
    Operation,
    comment,
    fill,
)


def enum(name: str, codes: dict[str, int | None]) -> str:
    """Write an enum; a code that is None is the one behind the last."""
    last = list(codes)[-1]
    lines = [
        f"    HPCCOLL_{code}{'' if number is None else f' = {number}'}{',' if code != last else ''}"
        + (f" /* {COMMENTS[code]} */" if code in COMMENTS else "")
        for code, number in codes.items()
    ]
    # As clang-format has it: comments of consecutive lines stand in one column.
    return "\n".join([f"typedef enum hpccoll_{name} {{", *aligned(lines), f"}} hpccoll_{name};"])


def aligned(lines: list[str]) -> list[str]:
    """Move the comments of consecutive lines into one column."""
    made, block = list[str](), list[str]()
    for line in [*lines, ""]:
        if " /*" in line:
            block.append(line)
            continue
        width = max((one.index(" /*") for one in block), default=0)
        made += [one.partition(" /*")[0].ljust(width) + " /*" + one.partition(" /*")[2] for one in block]
        made += [line] if line else []
        block = []
    return made


def counted(names: list[str]) -> dict[str, int | None]:
    """Give the first of them 0, and the others the numbers behind it."""
    return {name: None if number else 0 for number, name in enumerate(names)}


def own(*names: str) -> dict[str, int | None]:
    """Codes that the core has not."""
    return {name: CODES[name] for name in names}


def codes() -> str:
    """The enums."""
    dtypes = own("NO_COMPRESSION") | counted([*DTYPES, "DTYPES"])
    operations = counted([*OPERATIONS, "OPERATIONS"])
    reductions = own("OP_NULL") | counted([*REDUCTIONS, "REDUCTIONS"]) | own("MINLOC", "MAXLOC", "OP_LAST")
    enums: dict[str, dict[str, int | None]]
    enums = {"dtype": dtypes, "operation": operations, "reduction": reductions, "status": {**STATUSES}}
    return "\n\n".join(enum(name, its) for name, its in enums.items())


def prototype(one: Operation, form: str) -> str:
    """The prototype of a function, below its comment."""
    declared = [PARAMETERS[name]["c"] for name in one.in_c(form)]
    text = comment(one.comment("c", form), "/* ", " * ", " */")
    return text + fill(f"HPCCOLL_API int {one.function(form)}(", declared, ");")


def prototypes(operations: list[Operation], *forms: str) -> str:
    """The prototypes of some operations in some forms."""
    return "\n".join(prototype(one, form) for form in forms for one in operations if form in one.forms)


def blocking() -> str:
    """Collectives that block."""
    return prototypes(COLLECTIVES, "")


def asynchronous() -> str:
    """Collectives that return at once."""
    return prototypes(COLLECTIVES, "async")


def messages() -> str:
    """Point-to-point messages."""
    return prototypes(MESSAGES, "", "async")


def grids() -> str:
    """Operations on grids."""
    return prototypes(GRIDS, "")


def plans() -> str:
    """Plans of all of them."""
    return prototypes(ALL, "init")


# ---- the functions ---------------------------------------------------------------------------------------------------

FIELDS = {
    "op": "OP",
    "root": ".root = root",
    "out_count": ".out_count = out_count",
    "counts": ".counts = counts",
    "recv_counts": ".counts = recv_counts",
    "splits": ".splits = splits",
}
"""How a parameter becomes fields of the struct hc__call."""
INPUTS, RESULTS, COUNTS = ("in_or_both", "in", "both"), ("out_or_none", "out", "both"), ("count", "in_count")


def variable(one: Operation, among: tuple[str, ...]) -> str:
    """The name in C of the parameter of an operation that is one of some."""
    return next(PARAMETERS[name]["c"] for name in one.parameters if name in among).split()[-1].lstrip("*")


def function(one: Operation) -> str:
    """The functions of an operation in all forms: a macro of operations.c with the parameters, and their fields."""
    declared = fill("    LIST(", [PARAMETERS[name]["c"] for name in one.parameters], ")").strip()
    array = ", ".join(variable(one, among) for among in (INPUTS, RESULTS, COUNTS))
    fields = [FIELDS[name] for name in one.parameters if name in FIELDS]
    items = [one.name, declared, f".operation = HC_{one.name.upper()}", *fields, f"ARRAY({array})"]
    return fill("ALL(", items, ")", indent=4)


def functions() -> str:
    """The functions of the collectives that move one array."""
    return "\n".join(function(one) for one in COLLECTIVES if "dtype" in one.parameters)


SECTIONS = {section.__name__: section for section in (codes, grids, blocking, asynchronous, messages, plans)}
OF_FUNCTIONS = {"functions": functions}
