# SPDX-License-Identifier: Apache-2.0
"""The options of bsub (IBM, "bsub command reference", LSF 10.1), which have one dash even if they are long."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from hpccoll.tools.lint.options import Grammar, Option

VALUES = (
    "a alloc_flags app b C c clusters cn_cu cn_mem core_isolation csm cwd D data datagrp Dep e E Ep env eo eptl ext F "
    "f freq g G gpu hostfile i is J Jd jsdl jsdl_strict jsm json k L Lp ln_mem ln_slots M m mig n nnodes o oo outdir "
    "p P pack ptl q Q R rcacct S s sla sp stage step_cgroup t T Ti U u v w W wa We wt yaml Zs smt a_flags"
)
FLAGS = "ar B datachk H hl h I Ip IS ISp ISs ISX Is IX K N Ne rn rnc r ti tty ul V XF x"

bsub = Grammar(
    "bsub",
    [Option(word) for word in VALUES.split()] + [Option(word, value="no") for word in FLAGS.split()],
    dashes=1,
)


@dataclass(frozen=True)
class Sizes:
    """The sizes that a job asks for; None: the script does not say."""

    nodes: int | None
    slots: int | None
    alloc_flags: tuple[str, ...]

    @property
    def smt(self) -> int:
        """Hardware threads per core that are switched on (Summit's default is 4)."""
        levels = [int(flag[3:]) for flag in self.alloc_flags if re.fullmatch(r"smt[124]", flag)]
        return levels[-1] if levels else 4


def sizes(values: Mapping[str, str]) -> Sizes:
    """Read the sizes from a job's options."""

    def number(text: str) -> int | None:
        return int(text) if text.isdecimal() else None

    return Sizes(
        nodes=number(values.get("nnodes", "")),
        slots=number(values.get("n", "").partition(",")[0]),
        alloc_flags=tuple(shlex.split(values.get("alloc_flags", ""))),
    )


def run_limit(text: str) -> int | None:
    """Minutes of a run limit `[hours:]minutes`, with or without `/host`; None if the text is no run limit."""
    words = text.partition("/")[0].split(":")
    if len(words) > 2 or not all(word.isdecimal() for word in words):
        return None
    hours, minutes = (["0", *words])[-2:]
    return int(hours) * 60 + int(minutes)
