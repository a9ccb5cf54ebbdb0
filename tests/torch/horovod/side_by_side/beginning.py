# SPDX-License-Identifier: Apache-2.0
"""Questions before and after init: names, their arguments, and the place of this rank."""

import inspect
from typing import Any

from asking import ask, hvd, plain

# ---- before init ----------------------------------------------------------------------------------------


@ask("rank", "size", "local_rank", "local_size", "cross_rank", "cross_size", "mpi_threads_supported")
def before_init(name: str) -> Any:
    return getattr(hvd, name)()


@ask()
def is_initialized_and_init() -> Any:
    before = hvd.is_initialized()
    return before, hvd.init(), hvd.is_initialized(), hvd.init()


# ---- names and signatures -------------------------------------------------------------------------------


def shown(parameter: inspect.Parameter) -> str:
    default = parameter.default
    if default is parameter.empty:
        return parameter.name
    if inspect.isclass(default):
        return f"{parameter.name}={default.__name__}"
    if default is hvd.global_process_set:
        return f"{parameter.name}=global_process_set"
    return f"{parameter.name}={int(default) if isinstance(default, int) else default!r}"


@ask()
def public_names() -> Any:
    names = (name for name in dir(hvd) if not name.startswith("_"))
    return {name: signature(getattr(hvd, name)) for name in names if not inspect.ismodule(getattr(hvd, name))}


def signature(thing: Any) -> str:
    if not callable(thing):
        return plain(thing) if isinstance(thing, int) else "an object"
    try:
        return ", ".join(shown(one) for one in inspect.signature(thing).parameters.values())
    except ValueError:  # a class that its interpreter knows the signature of
        return "?"


# ---- where this rank is ---------------------------------------------------------------------------------


@ask("rank", "size", "local_rank", "local_size", "cross_rank", "cross_size")
def place(name: str) -> Any:
    return getattr(hvd, name)()


@ask(
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "gloo_built",
    "gloo_enabled",
    "nccl_built",
    "ddl_built",
)
def build(name: str) -> Any:
    return getattr(hvd, name)()


@ask("ccl_built", "cuda_built", "rocm_built")
def build_of_a_library(name: str) -> Any:
    return getattr(hvd, name)()
