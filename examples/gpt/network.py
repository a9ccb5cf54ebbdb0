# SPDX-License-Identifier: Apache-2.0
"""A decoder of GPT-2's form (Radford et al., "Language Models are Unsupervised Multitask Learners", 2019)."""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint


@dataclass(frozen=True)
class Size:
    """The hyperparameters of a network."""

    layers: int
    heads: int
    width: int
    context: int
    vocabulary: int


SIZES = {
    "tiny": Size(layers=2, heads=2, width=64, context=64, vocabulary=256),
    "small": Size(layers=4, heads=4, width=128, context=128, vocabulary=256),
    "gpt2": Size(layers=12, heads=12, width=768, context=1024, vocabulary=50257),
}
"""`gpt2` has the 124 million weights of GPT-2's smallest form; of its vocabulary, a text of bytes uses 256 words."""


class Attention(nn.Module):
    """Causal attention with several heads."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.heads = size.heads
        self.qkv = nn.Linear(size.width, 3 * size.width)
        self.projection = nn.Linear(size.width, size.width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """:param x: [batch, tokens, width]"""
        shape = (*x.shape[:2], self.heads, x.shape[2] // self.heads)
        query, key, value = (part.view(shape).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.projection(mixed.transpose(1, 2).reshape(x.shape))


class Block(nn.Module):
    """Attention and an MLP, each behind a layer norm and beside a residual connection."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.attention_norm, self.attention = nn.LayerNorm(size.width), Attention(size)
        self.mlp_norm = nn.LayerNorm(size.width)
        self.mlp = nn.Sequential(
            nn.Linear(size.width, 4 * size.width), nn.GELU(approximate="tanh"), nn.Linear(4 * size.width, size.width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.mlp(self.mlp_norm(x))


class Gpt(nn.Module):
    """Predicts the next token at each place of a window.

    :param recompute: keep no activations inside of blocks; the backward pass computes them again
    """

    def __init__(self, size: Size, recompute: bool = False) -> None:
        super().__init__()
        self.recompute = recompute
        self.token_embedding = nn.Embedding(size.vocabulary, size.width)
        self.position_embedding = nn.Embedding(size.context, size.width)
        self.blocks = nn.ModuleList(Block(size) for _ in range(size.layers))
        self.final_norm = nn.LayerNorm(size.width)
        self.apply(_initialise)
        for name, weight in self.named_parameters():  # the sum of 2 * layers terms keeps its variance
            if name.endswith(("projection.weight", "mlp.2.weight")):
                nn.init.normal_(weight, std=0.02 / (2 * size.layers) ** 0.5)

    def forward(self, windows: torch.Tensor) -> torch.Tensor:
        """Return the mean cross entropy, in nats per token.

        :param windows: int64[batch, tokens + 1]; each token but the first is to be predicted from those before it
        """
        tokens, wanted = windows[:, :-1], windows[:, 1:]
        x = self.token_embedding(tokens) + self.position_embedding.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.recompute and self.training else block(x)
        logits = functional.linear(self.final_norm(x), self.token_embedding.weight)
        return functional.cross_entropy(logits.flatten(0, 1).float(), wanted.flatten())


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear):
        nn.init.zeros_(module.bias)
