# SPDX-License-Identifier: Apache-2.0
"""Calculates what the measured network means for a training, and says it in one sentence.

A step computes for C seconds and reduces S bytes over N nodes. With B the bandwidth of the slowest link (bytes/s),
L its latency, A the speed of the reduction inside a node (bytes/s) and a batch of 16 MiB (the fusion threshold):

    network  =  2 (N-1)/N * S/B  +  2 ceil(log2 N) * L * ceil(S / 16 MiB)
    node     =  S / A                                  (0 with one rank per node)
    exposed  =  max(0, max(network, node) - overlap * C)
    efficiency  =  C / (C + exposed)

The bandwidth term is the lower bound of an allreduce (Patarasuk and Yuan 2009). The stages inside and between nodes
overlap in chunks, so the slower one counts. The formula leaves out contention of many links in one switch.
"""

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

from hpccoll.tools.doctor.network import duration

BATCH = 16 << 20
GOOD, POOR = 0.9, 0.7
MANY_PASSES = 4


class Model(NamedTuple):
    """A well-known neural network."""

    parameters: int
    compute: float | None
    """Published seconds of a step on one device; None: not published."""
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
    """The measured network of a job."""

    bandwidth: float
    """Bytes/s of the slowest link; 0: not measured."""
    latency: float
    """Seconds of the slowest link."""
    inside: float
    """Bytes/s of an allreduce inside a node; infinite with one rank per node."""


@dataclass(frozen=True)
class Training:
    """The needs of a training."""

    name: str
    nbytes: float
    """Bytes that a step reduces."""
    compute: float
    """Seconds that a step computes."""
    nodes: int
    overlap: float
    """Share of the computation during which gradients can already be sent."""
    passes: int = 1
    """Forward and backward passes whose gradients are added before they are sent."""


def network_seconds(training: Training, network: Network) -> float:
    """Seconds that a step's reduction takes between nodes, see the formula above."""
    if training.nodes < 2:
        return 0.0
    rounds = 2 * math.ceil(math.log2(training.nodes)) * math.ceil(training.nbytes / BATCH)
    volume = 2 * (training.nodes - 1) / training.nodes * training.nbytes
    return volume / network.bandwidth + rounds * network.latency


def efficiency(training: Training, network: Network) -> float:
    """Return the share of computation in the time of a step; only the last pass overlaps with the reduction."""
    reduction = max(network_seconds(training, network), training.nbytes / network.inside)
    exposed = max(0.0, reduction - training.overlap * training.compute)
    compute = training.passes * training.compute
    return compute / (compute + exposed)


def needed_bandwidth(training: Training, network: Network) -> float:
    """Bytes/s between nodes at which the efficiency would be GOOD; infinite: no bandwidth is enough."""
    allowed = training.compute * (1 / GOOD - 1 + training.overlap)
    waits = network_seconds(training, replace(network, bandwidth=math.inf))
    volume = 2 * (training.nodes - 1) / training.nodes * training.nbytes
    return volume / (allowed - waits) if allowed > waits else math.inf


def remedies(training: Training, network: Network) -> dict[str, float]:
    """Return the efficiency with each of the usual remedies; FP16 halves the bytes between nodes and nothing else."""
    passes = replace(training, passes=MANY_PASSES)
    halved = replace(network, bandwidth=2 * network.bandwidth)
    more = {
        f"{MANY_PASSES} local passes per step": efficiency(passes, network),
        "twice the samples per step": efficiency(replace(training, compute=2 * training.compute), network),
    }
    if training.nodes < 2:
        return more
    half = {"FP16 between nodes (HPCCOLL_WIRE=fp16)": efficiency(training, halved)}
    return half | more | {f"FP16 and {MANY_PASSES} passes": efficiency(passes, halved)}


def sentence(training: Training, network: Network) -> str:
    """Say in one sentence whether the network is fast enough, and what would help."""
    share = efficiency(training, network)
    what = (
        f"{training.name} on {training.nodes} node{'s' if training.nodes > 1 else ''} "
        f"({training.nbytes / 1e6:.4g} MB and {duration(training.compute)} of computation per step)"
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
            f"{GOOD:.0%} would need {8 * needs / 1e9:.3g} Gbit/s per node, measured: {8 * network.bandwidth / 1e9:.3g}"
            if math.isfinite(needs)
            else f"the latency of {duration(network.latency)} alone costs more than that"
        )
    return f"The network {verdict}: {what} will run at {share:.0%} efficiency; {why}. What would help: {helps}."
