# SPDX-License-Identifier: Apache-2.0
"""A residual network of dense layers in mixed precision: 24 gradient tensors, 1,051,210 parameters.

Weights, activations and gradients are FP16. Products are accumulated in FP32 and rounded once, as in tensor cores. The
optimizer keeps FP32 copies of the weights, the masters (Micikevicius et al., Mixed Precision Training, 2018).
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

Half = NDArray[np.float16]
Single = NDArray[np.float32]

PIXELS, WIDTH, BLOCKS, CLASSES = 64, 320, 10, 10


def product(a: Half, b: Half, add: Half | None = None) -> Half:
    """Return a @ b + add of FP16 arrays, accumulated in FP32 and rounded to FP16 once."""
    result = a.astype(np.float32) @ b.astype(np.float32)
    if add is not None:
        result += add
    return result.astype(np.float16)


class Network:
    """x -> stem -> block 0 ... block 9 -> head; a block is h + relu(h W + b)."""

    def __init__(self, seed: int, xp: Any = np) -> None:
        self.xp = xp  # the library of its arrays: NumPy or CuPy
        random = np.random.default_rng(seed)
        shapes = {"stem": (PIXELS, WIDTH)}
        shapes |= {f"block{i}": (WIDTH, WIDTH) for i in range(BLOCKS)}
        shapes["head"] = (WIDTH, CLASSES)
        self.masters: dict[str, Single] = {}
        for layer, (rows, columns) in shapes.items():
            spread = np.sqrt((0.2 if layer.startswith("block") else 1.0) / rows)
            self.masters[f"{layer}.weight"] = xp.asarray(random.normal(0, spread, (rows, columns)), np.float32)
            self.masters[f"{layer}.bias"] = xp.zeros(columns, np.float32)
        self.velocity = {name: np.zeros_like(master) for name, master in self.masters.items()}
        self.weights: dict[str, Half] = {}
        self._narrow()

    def _narrow(self) -> None:
        self.weights = {name: master.astype(np.float16) for name, master in self.masters.items()}

    def restore(self, masters: dict[str, Single], velocity: dict[str, Single]) -> None:
        """Continue from the state of another run."""
        self.masters = {name: self.xp.asarray(master) for name, master in masters.items()}
        self.velocity = {name: self.xp.asarray(speed) for name, speed in velocity.items()}
        self._narrow()

    def forward(self, x: Half) -> tuple[Half, list[Half]]:
        """Compute logits (n x 10) of images (n x 64); return them and the activations that backward() needs."""
        w = self.weights
        h = product(x, w["stem.weight"], w["stem.bias"])
        activations = [x, h]
        for i in range(BLOCKS):
            h = h + np.maximum(product(h, w[f"block{i}.weight"], w[f"block{i}.bias"]), 0)
            activations.append(h)
        return product(h, w["head.weight"], w["head.bias"]), activations

    def backward(self, slope: Half, activations: list[Half]) -> Iterator[dict[str, Half]]:
        """Yield each layer's gradients as soon as they exist, last layer first.

        `slope` is the gradient of the (scaled) loss with respect to the logits.
        """
        yield self._gradients("head", activations[-1], slope)
        slope = product(slope, self.weights["head.weight"].T)
        for i in reversed(range(BLOCKS)):
            before, after = activations[i + 1], activations[i + 2]
            inner = slope * (after > before)  # relu passed where the block added something
            yield self._gradients(f"block{i}", before, inner)
            slope = slope + product(inner, self.weights[f"block{i}.weight"].T)
        yield self._gradients("stem", activations[0], slope)

    @staticmethod
    def _gradients(layer: str, below: Half, slope: Half) -> dict[str, Half]:
        bias = slope.sum(axis=0, dtype=np.float32).astype(np.float16)
        return {f"{layer}.weight": product(below.T, slope), f"{layer}.bias": bias}

    def update(self, gradients: dict[str, Half], loss_scale: float, rate: float, momentum: float = 0.9) -> None:
        """Make one step of SGD with momentum on the FP32 masters, and round them to the FP16 weights."""
        for name, gradient in gradients.items():
            velocity = self.velocity[name]
            velocity *= momentum
            velocity += gradient.astype(np.float32) / np.float32(loss_scale)
            self.masters[name] -= np.float32(rate) * velocity
        self._narrow()


def cross_entropy(logits: Half, labels: NDArray[np.int64]) -> tuple[float, Single]:
    """Return the mean loss and its gradient with respect to the logits (n x 10), in FP32."""
    z = logits.astype(np.float32)
    z -= z.max(axis=1, keepdims=True)
    probability = np.exp(z)
    probability /= probability.sum(axis=1, keepdims=True)
    rows = np.arange(len(labels), like=labels)
    loss = float(-np.log(probability[rows, labels] + 1e-12).mean())
    probability[rows, labels] -= 1
    return loss, probability / len(labels)
