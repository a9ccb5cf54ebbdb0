# SPDX-License-Identifier: Apache-2.0
"""How long do 64 named tensors of 4 KB take: enqueued and then all awaited, as one group, or fused by hand?"""

import argparse
from collections.abc import Iterator

import many
from harness import TINY, Case, main
from libraries import Library


def cases(library: Library, options: argparse.Namespace) -> Iterator[Case]:
    count = 4 if options.size == TINY else 64
    return many.cases(library, [(f"tensor{i}", (1024,)) for i in range(count)], f"{count} x 4 KiB")


if __name__ == "__main__":
    main(__doc__ or "", cases)
