# SPDX-License-Identifier: Apache-2.0
"""The sections of hpccoll.hpp: the methods of a World that are a function of C each."""

from table import COLUMNS, PARAMETERS, WRAPPED, Operation, comment, fill

IN_PLACE = {"in_or_both": "x.data()", "out_or_none": "x.data()", "both": "x.data()", "sent": "x.data()"}
IN_PLACE["count"] = "count(x)"
APART = {"in_or_both": "in.data()", "out_or_none": "out.data()", "in": "in.data()", "out": "out.data()"}
APART |= {"count": "count(in)", "in_count": "count(in)", "out_count": "count(out)"}
ALLOCATED = APART | {"out": "HPCCOLL_ALLOCATE", "out_count": "0"}
OTHERS = {
    "dtype": "dtype_of<T>()",
    "counts": "place_for(counts)",
    "recv_counts": "place_for(recv_counts)",
    "received": "nullptr",
    "op": "op.c",
    "world": "c_",
    "request": "&made",
    "plan": "&made",
}
"""What a method gives for a parameter of the function of C, where it is not the parameter of that name."""
RETURNS = {"": "void", "async": "[[nodiscard]] Request", "init": "[[nodiscard]] Plan"}


def is_reduction(one: Operation) -> bool:
    """Whether its result has the size of its input, so that both may be one span."""
    return "in_or_both" in one.parameters


def has_args(one: Operation, form: str) -> bool:
    """A plan has no name: only factors, a compression or rows are left of Args."""
    of_plan = one.options("init") or "out" in one.parameters
    return one.has_args and (form != "init" or bool(of_plan))


def parameters(one: Operation, form: str, is_apart: bool) -> list[str]:
    """The parameters of a method. With one span, that of the input is the result's, too."""
    names = one.in_order("cpp", form, ["args"] if has_args(one, form) else [])
    data = [name for name in names if "span<" in PARAMETERS[name]["cpp"] and name != "splits"]
    spans = [PARAMETERS[name]["cpp"] for name in data]
    if is_reduction(one):
        spans = ["std::span<const T> in", "std::span<T> out"] if is_apart else spans[:1]
    elif form == "" and "out" in one.parameters:
        spans = spans[:1]
    return [*spans, *(declared(one, name) for name in names if name not in data)]


def declared(one: Operation, name: str) -> str:
    """A parameter, with its default."""
    if name == "op" and "root" not in one.parameters:
        return f"{PARAMETERS[name]['cpp']} = HPCCOLL_SUM"
    if name == "tag":
        return f"{PARAMETERS[name]['cpp']} = {'0' if one.name == 'send' else 'HPCCOLL_ANY_TAG'}"
    return PARAMETERS[name]["cpp"]


def given(one: Operation, form: str, names: dict[str, str]) -> list[str]:
    """The arguments of the function of C."""
    own = {"args": "&c" if has_args(one, form) else "nullptr", "splits": splits(one, form)}
    return [(names | OTHERS | own).get(name, name) for name in one.in_c(form)]


def splits(one: Operation, form: str) -> str:
    """The splits, which a scatter needs on its root alone."""
    operation = f"HPCCOLL_{one.name.upper()}"
    checked = f"of_ranks_init(splits, {operation})" if form == "init" else f"of_ranks(splits, {operation}, c)"
    return f"rank() == root ? {checked} : nullptr" if "root" in one.parameters else checked


def call(one: Operation, form: str, names: dict[str, str]) -> str:
    """A call of the function of C, whose status becomes an exception."""
    return fill(f"        check({one.function(form)}(", given(one, form, names), "));")


def head(one: Operation, form: str, returns: str, is_apart: bool) -> str:
    """The comment and the head of a method."""
    own = parameters(one, form, is_apart)
    of_out = one.comment("cpp", "out") if "std::span<T> out" in own else ""
    text = comment(one.comment("cpp", form) or of_out, "    // ", "    // ")
    name = one.function(form).removeprefix("hpccoll_")
    whole = fill(f"    {returns} {name}(", own, ") const {")
    if "dtype" not in one.parameters:
        return text + whole
    in_a_line = f"    template <class T> {whole.strip()}"
    return text + (in_a_line if "\n" not in whole and len(in_a_line) <= COLUMNS else f"    template <class T>\n{whole}")


def fits(one: Operation, form: str, size: str) -> str:
    """A call that compares a size with that of `out`, and refuses the call on all ranks if they differ."""
    operation = f"HPCCOLL_{one.name.upper()}"
    if form == "init":
        return f"equal_init({size}, out.size(), {operation})"
    return f"equal({size}, out.size(), {operation}, c)"


def method(one: Operation, form: str, is_apart: bool) -> str:
    """A method that gives its spans to the function of C."""
    names = dict(APART if is_apart or (not is_reduction(one) and "out" in one.parameters) else IN_PLACE)
    checks = []
    if is_reduction(one) and is_apart:
        equal = fits(one, form, "in.size()")
        names["count"] = f"rank() == root ? {equal} : count(in)" if "root" in one.parameters else equal
    elif one.reads == "read_shares":
        checks = [f"        {fits(one, form, 'share(in, args)')};"]
    kind = RETURNS[form].split()[-1]
    handle = {"async": "hpccoll_request", "init": "hpccoll_plan"}.get(form)
    lines = [
        head(one, form, RETURNS[form], is_apart),
        *(["        const hpccoll_args c = args.c();"] if has_args(one, form) else []),
        *checks,
        *([f"        {handle} *made = nullptr;"] if handle else []),
        call(one, form, names),
        *([f"        return {kind}(made);"] if handle else []),
        "    }",
    ]
    return "\n".join(lines)


def allocating(one: Operation) -> str:
    """A method that returns its result: the library allocates it, or it is this rank's share."""
    lines = [head(one, "", "std::vector<T>", False), "        const hpccoll_args c = args.c();"]
    if one.reads == "read_shares":
        lines += ["        Array<T> out(share(in, args));", call(one, "", APART)]
        lines += ["        return as_vector<T>(std::move(out));"]
    else:
        lines += [
            f"        on_host(in.data(), HPCCOLL_{one.name.upper()}, c);",
            "        hpccoll_request *made = nullptr;",
        ]
        lines += [call(one, "async", ALLOCATED)]
        lines += ["        return take<T>(made);"]
    return "\n".join([*lines, "    }"])


def methods(operations: list[Operation], form: str) -> str:
    """The methods of a form."""
    made = []
    for one in operations:
        if form not in one.forms or form in one.by_hand:
            continue
        if form == "" and "out" in one.parameters:
            made.append(allocating(one))
        else:
            made += [method(one, form, is_apart) for is_apart in ((False, True) if is_reduction(one) else (False,))]
    return "\n".join(made)


COLLECTIVES = [one for one in WRAPPED if not one.is_message]
MESSAGES = [one for one in WRAPPED if one.is_message]


def collectives() -> str:
    """The methods that block."""
    return methods(COLLECTIVES, "")


def asynchronous() -> str:
    """Those that return a Request."""
    return methods(COLLECTIVES, "async")


def plans() -> str:
    """Those that return a Plan."""
    return methods(WRAPPED, "init")


def messages() -> str:
    """Point-to-point messages."""
    return "\n".join(methods(MESSAGES, form) for form in ("", "async"))


SECTIONS = {section.__name__: section for section in (collectives, asynchronous, plans, messages)}
