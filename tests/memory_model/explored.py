# SPDX-License-Identifier: Apache-2.0
"""The program that explores the memory model (explorer.h), and its scenarios. `build` is compile_c of conftest.py."""

from collections.abc import Callable
from pathlib import Path

EXPLORER = ("choices", "threads", "memory", "plants", "hooks", "main")
OWN = (
    "scenarios", "litmus", "stubs", "rings", "nodes", "shortcuts", "doorbells", "flats", "nets", "loops", "loop_stubs",
    "never", "traces",
)  # fmt: skip
REAL = (
    "core/status",
    "core/text",
    "core/who",
    "transport/control/control",
    *(f"transport/shm/{name}" for name in (
        "allreduce", "byte_ring", "cells", "chunks", "control_segment", "direct", "exchange", "flat", "layout",
        "pieces", "shm", "shortcut", "small", "stores",
    )),
)  # fmt: skip

OF_THREADS = (
    "transport/net/local",
    *(f"loop/{name}" for name in (
        "counted", "count_request", "trace", "tuning", "drive", "place", "inbox", "handle", "thread", "completion",
        "progress",
    )),
)  # fmt: skip

SEEN = "-fsanitize=thread -fno-builtin -fno-inline -fno-optimize-sibling-calls"
"""Each access calls hooks.c, and each atomic operation of the source is one place in the program."""
WRAPPED = (
    "memcpy", "memmove", "memset", "memcmp", "sched_yield", "syscall", "pthread_mutex_lock", "pthread_mutex_unlock",
    "pthread_create", "pthread_join", "hc__node_control_reads", "hc__node_control_read",
)  # fmt: skip
GROUPED = "-include tests/memory_model/groups.h"
WATCHED = "-Dmalloc=mm_malloc -Dcalloc=mm_calloc -Dfree=mm_free"
"""Memory that the threads share without a segment."""

IN_NODE = (
    "ring", "messages", "cells-2", "cells-3", "small-2", "small-3", "small-asleep", "chunks-2", "chunks-3",
    "chunks-asleep", "rails-2", "rails-3", "turns-2", "turns-3", "broadcasts-2", "broadcasts-3",
    "broadcasts-turns", "rounds-2", "rounds-3", "direct-2", "direct-3", "leaving", "shortcut-2", "shortcut-3",
    "shortcut-off-2", "shortcut-off-3", "shortcut-groups", "shortcut-off-groups", "votes-2", "votes-3",
    "doorbells-2", "doorbells-3", "sleeper-3", "control-2", "control-3", "lives", "withdrawn", "plan-2",
    "plan-3", "plan-from-one", "plan-to-one", "plan-asleep", "local-2", "local-3", "cancel",
)  # fmt: skip
"""Each order of the code that they run must be needed."""
IN_LOOP = (
    "trace", "tuning", "completions", "callers-2", "callers-3", "counting-2", "background-2", "background-3", "polls-2",
)  # fmt: skip
"""They run a part of the loop, and need a part of its orders."""
SCENARIOS = IN_NODE + IN_LOOP


def explorer(build: Callable[..., Path]) -> Path:
    return build(
        *(f"tests/memory_model/{name}.c -O2" for name in EXPLORER),
        *(f"tests/memory_model/{name}.c {SEEN}" for name in OWN),
        *(f"ext/{name}.c {SEEN} {GROUPED if name.endswith('layout') else ''}" for name in REAL),
        *(f"ext/{name}.c {SEEN} {WATCHED}" for name in OF_THREADS),
        flags=tuple(f"-Wl,--wrap={name}" for name in WRAPPED), name="explore",
    )  # fmt: skip
