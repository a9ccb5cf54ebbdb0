# SPDX-License-Identifier: Apache-2.0
"""The sections of hpccoll.f90 and of its C part, hpccoll_fortran.c."""

from table import CODES, COLUMNS, DTYPES, PARAMETERS, REDUCTIONS, STATUSES, WRAPPED, Operation, comment, fill

BY_ROWS = ("read_shares", "read_both", "read_gathered", "read_scattered")
IS_ROOT = "hpccoll_rank(*world) == *root, "
READS = {
    "read_equal": "x, out, &input, &result",
    "read_array": '"x", x, &input',
    "read_shares": "x, out, *world, &input, &result",
    "read_both": "x, out, &input, &result",
    "read_pair": "x, out, &input, &result",
    "read_gathered": f"x, out, {IS_ROOT}&input, &result",
    "read_scattered": f"x, out, {IS_ROOT}&input, &result",
}
"""What comes behind the name of the procedure, for the functions that read arrays."""
IN_C = {
    "type(*)": "array ",
    "character(len=*)": "array ",
    "integer(c_int)": "int *",
    "integer(c_int64_t)": "int64_t *",
    "real(c_double)": "double *",
    "type(hpccoll_world)": "hpccoll_world **",
    "type(hpccoll_plan)": "hpccoll_plan **",
    "type(hpccoll_request)": "hpccoll_request **",
}
"""Types of Fortran, as they come to C."""
GIVEN = {
    "in_or_both": "input.data",
    "in": "input.data",
    "both": "input.data",
    "sent": "input.data",
    "count": "input.count",
    "in_count": "input.count",
    "dtype": "input.dtype",
    "out": "result.data",
    "out_or_none": "result.data",
    "out_count": "result.count",
    "op": "(hpccoll_reduction)*op",
    "root": "*root",
    "dest": "*dest",
    "source": "*source",
    "tag": "*tag",
    "sendtag": "*sendtag",
    "recvtag": "*recvtag",
    "world": "*world",
}
"""What the C part gives for a parameter of the function of C, where it is not the parameter of that name."""

# ---- the module ------------------------------------------------------------------------------------------------------


def constants(codes: dict[str, int]) -> str:
    """Named constants, which are public."""
    declared = [f"HPCCOLL_{name} = {code}" for name, code in codes.items()]
    return listed("  integer(c_int), parameter, public :: ", declared)


def listed(head: str, items: list[str]) -> str:
    """A statement with a list, which goes on in further lines."""
    return fill(head, items, "", indent=4, columns=COLUMNS - 2).replace("\n", " &\n")


def codes() -> str:
    """The codes of hpccoll.h."""
    core = {name: code for code, name in enumerate(REDUCTIONS) if name != "ADASUM"}
    reductions = {"OP_NULL": CODES["OP_NULL"], **core, **{name: CODES[name] for name in ("MINLOC", "MAXLOC")}}
    values = [f"HPCCOLL_{name} = {code}" for name, code in reductions.items()]
    names = [f"HPCCOLL_{name}" for name in reductions]
    enum = listed("    enumerator :: ", values).replace("\n    ", "\n      ")
    dtypes = {name: code for code, name in enumerate(DTYPES)}
    return "\n".join(
        [
            "  enum, bind(c)",
            enum,
            "  end enum",
            listed("  public :: ", names),
            constants({"NO_COMPRESSION": CODES["NO_COMPRESSION"]} | dtypes),
            constants(STATUSES),
        ]
    )


def public() -> str:
    """The names of the procedures."""
    forms = [[one.function(form) for one in WRAPPED if form in one.forms] for form in ("", "init")]
    return "\n".join(listed("  public :: ", names) for names in forms)


def procedures() -> str:
    """The interfaces of the procedures, which are asynchronous with `request`."""
    return "\n".join(interface(one, "") for one in WRAPPED)


def plans() -> str:
    """The interfaces of the procedures that make plans."""
    return "\n".join(interface(one, "init") for one in WRAPPED if "init" in one.forms)


def has_request(one: Operation, form: str) -> bool:
    """Whether it is asynchronous with `request`: the two forms of C are one procedure."""
    return form == "" and "async" in one.forms


def arguments(one: Operation, form: str) -> list[tuple[str, str]]:
    """The arguments of a procedure: type and attributes, and the name."""
    own = ["world", *one.options(form), *(["request"] if has_request(one, form) else []), "ierror"]
    declared = (PARAMETERS[name]["fortran"].partition(" :: ") for name in one.in_order("fortran", form, own))
    return [(kind, name) for kind, _, name in declared]


def interface(one: Operation, form: str) -> str:
    """The interface of a procedure, below its comment."""
    declared = arguments(one, form)
    names = ", ".join(name.partition("(")[0] for _, name in declared)
    head, bound = f"    subroutine {one.function(form)}({names})", f'bind(c, name="{entry(one, form)}")'
    lines = [f"{head} {bound}"] if len(f"{head} {bound}") <= COLUMNS else [f"{head} &", f"        {bound}"]
    lines.append("      import")
    for number, (kind, name) in enumerate(declared):
        if number and kind == declared[number - 1][0]:
            lines[-1] += f", {name}"
        else:
            lines.append(f"      {kind} :: {name}")
    return comment(one.comment("fortran", form), "    ! ", "    ! ") + "\n".join([*lines, "    end subroutine"])


def entry(one: Operation, form: str) -> str:
    """The name of the function of the C part."""
    return one.function(form).replace("hpccoll_", "hpccoll_f_", 1)


# ---- its C part ------------------------------------------------------------------------------------------------------


def glue() -> str:
    """The functions of the C part that the procedures call."""
    return "\n\n".join(function(one, "") for one in WRAPPED)


def glue_plans() -> str:
    """Those that make plans."""
    return "\n\n".join(function(one, "init") for one in WRAPPED if "init" in one.forms)


def in_c(kind: str, name: str) -> str:
    """What comes to C for an argument (Fortran 2018, 18.3.6): an address, or the descriptor of an array or a text."""
    fortran, *attributes = kind.split(", ")
    made = IN_C[fortran]
    if "intent(in)" in attributes and made.endswith("*"):
        made = made.replace("**", "*const *") if "**" in made else f"const {made}"
    return made + name.partition("(")[0]


def function(one: Operation, form: str) -> str:
    """A function of the C part: reads the arrays, and calls the function of C."""
    received = [in_c(kind, name) for kind, name in arguments(one, form)]
    lines = [
        fill(f"void {entry(one, form)}(", received, ") {"),
        *(["    *plan = NULL;"] if form == "init" else []),
        *(["    options o;"] if one.has_args else []),
        *(checked(one, form, one.reads) if one.reads else unchecked(one, form)),
        "    report(status, ierror);",
        "}",
    ]
    return "\n".join(lines)


def checked(one: Operation, form: str, reads: str) -> list[str]:
    """Read the arrays, and call where they are right."""
    arguments = READS[reads]
    body = [*options(one, form, " " * 8), *calls(one, form, " " * 8)]
    braces = len(body) > 1
    return [
        f"    place input{', result' * ('&result' in arguments)};",
        f'    int status = {reads}("{one.function(form)}", {arguments});',
        f"    if (status >= 0){' {' * braces}",
        *body,
        *otherwise(one, form, braces),
    ]


def otherwise(one: Operation, form: str, braces: bool) -> list[str]:
    """What is done if the arrays are wrong: the other ranks of a collective are told."""
    if one.is_message:
        return ["    }"] * braces
    operation = f"HPCCOLL_{one.name.upper()}"
    told = f"tell_init({operation}, *world);" if form == "init" else f"tell({operation}, name, *world);"
    between = ["    } else {", "    }"] if braces else ["    else"]
    return [between[0], f"        status = {told}", *between[1:]]


def unchecked(one: Operation, form: str) -> list[str]:
    """Call: there are no arrays."""
    return ["    int status;", "    own_error[0] = 0;", *options(one, form, " " * 4), *calls(one, form, " " * 4)]


def options(one: Operation, form: str, margin: str) -> list[str]:
    """The line that reads what stands in `args`."""
    own = one.options(form)
    given = [name if name in own else "NULL" for name in ("name", "prescale", "postscale", "compression")]
    row = "input.row" if one.reads in BY_ROWS else "1"
    line = f"{margin}const hpccoll_args *args = read_options(&o, {', '.join(given)}, {row});"
    return [line] if one.has_args else []


def calls(one: Operation, form: str, margin: str) -> list[str]:
    """The call, or the two of which one has a request."""
    if not has_request(one, form):
        return [call(one, form, f"{margin}status = ")]
    inner = margin + "    status = "
    return [f"{margin}if (request)", call(one, "async", inner), f"{margin}else", call(one, "", inner)]


def call(one: Operation, form: str, head: str) -> str:
    """A call of the function of C."""
    return fill(f"{head}{one.function(form)}(", [GIVEN.get(name, name) for name in one.in_c(form)], ");")


OF_MODULE = {section.__name__: section for section in (codes, public, procedures, plans)}
OF_GLUE = {section.__name__: section for section in (glue, glue_plans)}
