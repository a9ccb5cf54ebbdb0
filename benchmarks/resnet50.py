# SPDX-License-Identifier: Apache-2.0
"""How long do ResNet-50's 161 gradients take, last layer first, in fp32 and with FP16 compression?"""

import argparse
from collections.abc import Iterator

import many
from harness import TINY, Case, main
from libraries import Library
from shapes import resnet50


def cases(library: Library, options: argparse.Namespace) -> Iterator[Case]:
    gradients = resnet50()[::-1]
    if options.size == TINY:
        gradients = gradients[-8:]
    return many.cases(library, gradients, f"{len(gradients)} gradients")


if __name__ == "__main__":
    main(__doc__ or "", cases)
