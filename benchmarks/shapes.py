# SPDX-License-Identifier: Apache-2.0
"""The gradients of ResNet-50 (He et al., 2015): names and shapes in forward order, 161 tensors, 25,557,032 elements."""

from math import prod


def resnet50() -> list[tuple[str, tuple[int, ...]]]:
    tensors: list[tuple[str, tuple[int, ...]]] = []

    def convolution(name: str, into: int, out: int, side: int) -> None:
        tensors.append((f"{name}.weight", (out, into, side, side)))
        tensors.append((f"{name}.norm.weight", (out,)))
        tensors.append((f"{name}.norm.bias", (out,)))

    convolution("stem", 3, 64, 7)
    into = 64
    for stage, (blocks, width) in enumerate(((3, 64), (4, 128), (6, 256), (3, 512))):
        for block in range(blocks):
            name = f"stage{stage}.block{block}"
            convolution(f"{name}.reduce", into, width, 1)
            convolution(f"{name}.middle", width, width, 3)
            convolution(f"{name}.expand", width, 4 * width, 1)
            if block == 0:
                convolution(f"{name}.shortcut", into, 4 * width, 1)
            into = 4 * width
    tensors.append(("head.weight", (1000, into)))
    tensors.append(("head.bias", (1000,)))
    return tensors


assert len(resnet50()) == 161
assert sum(prod(shape) for _, shape in resnet50()) == 25_557_032
