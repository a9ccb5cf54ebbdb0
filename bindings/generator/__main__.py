# SPDX-License-Identifier: Apache-2.0
"""Write the sections of the bindings that are made from bindings/table.toml and ext/core/hc.h.

python bindings/generator            rewrite what stands between the lines "generated: NAME" and "end of generated"
python bindings/generator --check    change nothing; exit status 1 if a file is not up to date
"""

import re
import sys
from collections.abc import Callable

import c
import cpp
import cython
import fortran
import python
from table import ROOT

FILES: dict[str, dict[str, Callable[[], str]]] = {
    "ext/api/hpccoll.h": c.SECTIONS,
    "ext/api/operations.c": c.OF_FUNCTIONS,
    "bindings/cpp/hpccoll.hpp": cpp.SECTIONS,
    "bindings/fortran/hpccoll.f90": fortran.OF_MODULE,
    "bindings/fortran/hpccoll_fortran.c": fortran.OF_GLUE,
    "ext/cython/hc.pxd": cython.SECTIONS,
    "hpccoll/default_world.py": python.SECTIONS,
}
SECTION = re.compile(r"(^ *\S+ generated: (\w+) .*?\n).*?(^ *\S+ end of generated\b.*?\n)", re.DOTALL | re.MULTILINE)


def generated(text: str, sections: dict[str, Callable[[], str]]) -> str:
    """The text of a file with its sections as the tables give them."""
    assert [name for _, name, _ in SECTION.findall(text)] == list(sections), "a file lacks a section, or has another"
    return SECTION.sub(lambda found: f"{found[1]}{sections[found[2]]()}\n{found[3]}", text)


def main() -> int:
    """Rewrite the files that are not up to date, or name them."""
    stale, checks = [], "--check" in sys.argv
    for name, sections in FILES.items():
        text = (ROOT / name).read_text()
        if (fresh := generated(text, sections)) != text:
            stale.append(name)
            if not checks:
                (ROOT / name).write_text(fresh)
    print(f"{'not up to date' if checks else 'rewritten'}: {', '.join(stale) or 'none'}")
    return int(bool(stale) and checks)


if __name__ == "__main__":
    sys.exit(main())
