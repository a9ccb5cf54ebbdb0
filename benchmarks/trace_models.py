# SPDX-License-Identifier: Apache-2.0
"""The models whose traces come with hpccoll, built from their published shapes, without weights.

    hpccoll bench record benchmarks/trace_models.py:bert_large --out hpccoll/tools/bench/traces/bert-large.json

The function's first line of documentation becomes the source of the trace.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

Model = tuple[nn.Module, Callable[[], Tensor]]


class Bottleneck(nn.Module):
    """A block of ResNet-50."""

    def __init__(self, into: int, width: int, stride: int) -> None:
        super().__init__()
        self.path = nn.Sequential(
            *convolution(into, width, 1), nn.ReLU(), *convolution(width, width, 3, stride), nn.ReLU(),
            *convolution(width, 4 * width, 1),
        )  # fmt: skip
        changes = stride > 1 or into != 4 * width
        self.shortcut = nn.Sequential(*convolution(into, 4 * width, 1, stride)) if changes else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.path(x) + self.shortcut(x))


def convolution(into: int, out: int, side: int, stride: int = 1) -> list[nn.Module]:
    return [nn.Conv2d(into, out, side, stride, side // 2, bias=False), nn.BatchNorm2d(out)]


def resnet50() -> Model:
    """ResNet-50 (He et al., 2015), 4 images of 224 x 224"""
    layers: list[nn.Module] = [*convolution(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    into = 64
    for stage, (blocks, width) in enumerate(((3, 64), (4, 128), (6, 256), (3, 512))):
        for block in range(blocks):
            layers.append(Bottleneck(into, width, 2 if stage and not block else 1))
            into = 4 * width
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(into, 1000))
    images, classes = torch.randn(4, 3, 224, 224), torch.randint(1000, (4,))
    return model, lambda: functional.cross_entropy(model(images), classes)


class Transformer(nn.Module):
    """Embeddings, encoder layers and a projection to the vocabulary that shares the embeddings' weights."""

    def __init__(self, words: int, length: int, width: int, layers: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, "gelu", batch_first=True, norm_first=causal)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.norm, self.causal = nn.LayerNorm(width), causal

    def forward(self, tokens: Tensor) -> Tensor:
        length = tokens.shape[1]
        x = self.words(tokens) + self.places(torch.arange(length))
        mask = nn.Transformer.generate_square_subsequent_mask(length) if self.causal else None
        return self.norm(self.layers(x, mask, is_causal=self.causal)) @ self.words.weight.T


def language_model(model: Transformer, batch: int, length: int) -> Model:
    tokens = torch.randint(model.words.num_embeddings, (batch, length))
    return model, lambda: functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())


def bert_large() -> Model:
    """BERT-large (Devlin et al., 2018): 24 layers of 1024, 30,522 words; 2 sequences of 128 words"""
    return language_model(Transformer(30522, 512, 1024, 24, 16, causal=False), 2, 128)


def gpt2() -> Model:
    """GPT-2 class (Radford et al., 2019, small): 12 layers of 768, 50,257 words; 2 sequences of 256 words"""
    return language_model(Transformer(50257, 1024, 768, 12, 12, causal=True), 2, 256)


def stemdl() -> Model:
    """STEMDL-like: the network of examples/stemdl, 5 levels of 6 dense layers, growth 40; 256 pixels, scan 64 x 64"""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples" / "stemdl"))
    from network import Reconstruction

    model = Reconstruction(256, growth=40, layers=6, levels=5)
    patterns, potential = torch.randn(1, 256, 64, 64), torch.randn(1, 128, 128)
    return model, lambda: functional.mse_loss(model(patterns), potential)
