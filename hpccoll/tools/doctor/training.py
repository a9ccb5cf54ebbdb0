# SPDX-License-Identifier: Apache-2.0
"""What the measured network means for a training: a formula, its parts, and one sentence.

A step computes for C seconds and reduces S bytes over N nodes. With B the bandwidth of the slowest link (bytes/s),
L its latency, A the speed of the reduction inside a node (bytes/s) and a batch of 16 MiB (the fusion threshold):

    network  =  2 (N-1)/N * S/B  +  2 ceil(log2 N) * L * ceil(S / 16 MiB)
    node     =  S / A                                  (0 with one rank a node)
    exposed  =  max(0, max(network, node) - overlap * C)
    efficiency  =  C / (C + exposed)

The bandwidth term is the lower bound of an allreduce (Patarasuk and Yuan 2009); the stages inside and between nodes
overlap in chunks, so the slower one counts. Contention of many links in one switch is not in it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

from hpccoll.tools.doctor.network import duration

BATCH = 16 << 20
GOOD, POOR = 0.9, 0.7
MANY_PASSES = 4
GIBIBYTE = 1 << 30


class Model(NamedTuple):
    """A network that people know."""

    parameters: int
    compute: float | None
    """Seconds of a step on one device, where somebody published them."""
    source: str


MODELS = {
    "resnet-50": Model(
        25_557_032,
        0.111,
        "torchvision; 128 images on a V100-SXM2 in mixed precision (sandeepkumar-skb/pytorch_experiments)",
    ),
    "bert-large": Model(
        340_000_000,
        0.457,
        "Devlin et al. 2018; 96 sequences of 128 on an Ascend 910 (MindSpore 0.3, benchmarks)",
    ),
    "vgg-16": Model(138_000_000, None, "Simonyan and Zisserman 2014"),
    "fc-densenet-103": Model(9_400_000, None, "Jegou et al. 2017"),
}


@dataclass(frozen=True)
class Network:
    """What was measured."""

    bandwidth: float
    """Bytes/s of the slowest link; 0: not measured."""
    latency: float
    inside: float
    """Bytes/s of an allreduce inside a node; infinite with one rank a node."""


@dataclass(frozen=True)
class Training:
    """What is needed."""

    name: str
    nbytes: float
    """Bytes that a step reduces."""
    compute: float
    """Seconds that it computes."""
    nodes: int
    overlap: float
    """Share of the computation during which gradients can already travel."""
    passes: int = 1
    """Forward and backward passes whose gradients are added before they travel."""


def network_seconds(training: Training, network: Network) -> float:
    """Time between nodes, see the formula above."""
    if training.nodes < 2:
        return 0.0
    rounds = 2 * math.ceil(math.log2(training.nodes)) * math.ceil(training.nbytes / BATCH)
    volume = 2 * (training.nodes - 1) / training.nodes * training.nbytes
    return volume / network.bandwidth + rounds * network.latency


def efficiency(training: Training, network: Network) -> float:
    """Share of the time that is computation; only the last pass overlaps with the reduction."""
    reduction = max(network_seconds(training, network), training.nbytes / network.inside)
    exposed = max(0.0, reduction - training.overlap * training.compute)
    compute = training.passes * training.compute
    return compute / (compute + exposed)


def needed_bandwidth(training: Training, network: Network) -> float:
    """Bytes/s at which the efficiency would be GOOD, as far as the network between nodes decides it; inf: none."""
    allowed = training.compute * (1 / GOOD - 1 + training.overlap)
    waits = network_seconds(training, replace(network, bandwidth=math.inf))
    volume = 2 * (training.nodes - 1) / training.nodes * training.nbytes
    return volume / (allowed - waits) if allowed > waits else math.inf


def remedies(training: Training, network: Network) -> dict[str, float]:
    """The efficiency with each of the usual remedies. FP16 halves what crosses between nodes and nothing else."""
    passes = replace(training, passes=MANY_PASSES)
    halved = replace(network, bandwidth=2 * network.bandwidth)
    more = {
        f"{MANY_PASSES} local passes a step": efficiency(passes, network),
        "twice the samples a step": efficiency(replace(training, compute=2 * training.compute), network),
    }
    if training.nodes < 2:
        return more
    half = {"FP16 between nodes (HPCCOLL_WIRE=fp16)": efficiency(training, halved)}
    return half | more | {f"FP16 and {MANY_PASSES} passes": efficiency(passes, halved)}


def sentence(training: Training, network: Network) -> str:
    """Whether the network will do, and what would help."""
    share = efficiency(training, network)
    what = (
        f"{training.name} on {training.nodes} node{'s' if training.nodes > 1 else ''} "
        f"({training.nbytes / 1e6:.4g} MB and {duration(training.compute)} of computation a step)"
    )
    if share >= GOOD:
        return f"The network will do: {what} will run at {share:.0%} efficiency."
    verdict = "will do at a price" if share >= POOR else "will not do"
    inside = training.nbytes / network.inside > network_seconds(training, network)
    helps = ", ".join(f"{name} {value:.0%}" for name, value in remedies(training, network).items())
    if inside:
        why = "the reduction inside the node is the slower part"
    else:
        needs = needed_bandwidth(training, network)
        why = (
            f"{GOOD:.0%} would need {8 * needs / 1e9:.3g} Gbit/s a node, measured are {8 * network.bandwidth / 1e9:.3g}"
            if math.isfinite(needs)
            else f"the latency of {duration(network.latency)} alone costs more than that"
        )
    return (
        f"The network {verdict}: {what} will run at {share:.0%} efficiency; {why}. What would help: {helps}."
    )
