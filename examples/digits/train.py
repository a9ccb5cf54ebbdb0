# SPDX-License-Identifier: Apache-2.0
"""Train a network on handwritten digits: FP16, data-parallel, from HDF5 shards.

    hpccoll run -np 4 --nodes 2 python examples/digits/train.py
    mpirun -np 4 python examples/digits/train.py --verify

Each rank reads its shards and computes the gradients of its part of the batch; hpccoll makes their mean while
the backward pass still runs. One rank is made to overflow at one step: its infinity reaches every rank in the
reduced gradient, so that all skip the same step and halve the loss scale without another message.
"""

import argparse
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from data import SHARDS, Shard, batches, read_shards, steps_per_epoch, write_shards
from exchange import Alone, Exchange, Mean
from network import Network, cross_entropy
from record import communication, write_record
from threadpoolctl import threadpool_limits
from tqdm import tqdm

import hpccoll

TOLERANCE = (
    0.1  # distance to the one-process weights, in units of the way training has gone (docs/benchmarks.md)
)


@dataclass
class LossScale:
    """Doubles after a while without overflow, halves with each (the step is then skipped)."""

    value: float = 1024.0
    patience: int = 100
    good_steps: int = 0

    def update(self, overflow: bool) -> None:
        self.good_steps = 0 if overflow else self.good_steps + 1
        if overflow:
            self.value /= 2
        elif self.good_steps == self.patience:
            self.value, self.good_steps = self.value * 2, 0


@dataclass
class History:
    loss: list[float] = field(default_factory=list)  # of this rank's part of the batch, one a step
    scale: list[float] = field(default_factory=list)
    skipped: list[int] = field(default_factory=list)  # steps skipped because of an overflow


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="FP16 data-parallel training on handwritten digits.")
    here = Path(__file__).resolve().parent.parent / "data" / "digits"
    parser.add_argument("--folder", type=Path, default=here, help="where the shards and the record lie")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument(
        "--per-shard", type=int, default=8, help=f"samples a step from each of the {SHARDS} shards"
    )
    parser.add_argument("--rate", type=float, default=0.02, help="learning rate")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--layers-per-group", type=int, default=3, help="layers whose gradients travel as one group"
    )
    parser.add_argument("--overflow-step", type=int, default=20, help="step with a forced overflow; -1: none")
    parser.add_argument("--overflow-rank", type=int, default=-1, help="rank that overflows; -1: the last")
    parser.add_argument(
        "--verify", action="store_true", help="train again in one process and compare the weights"
    )
    return parser.parse_args()


def train(
    network: Network,
    shards: list[Shard],
    exchange: Exchange,
    options: argparse.Namespace,
    overflows: bool,
    quiet: bool,
) -> History:
    """All epochs on this rank's shards. `overflows`: this rank overflows at options.overflow_step."""
    history, scale = History(), LossScale()
    progress = tqdm(
        total=options.epochs * steps_per_epoch(options.per_shard), unit="step", mininterval=0.5, disable=quiet
    )
    for epoch in range(options.epochs):
        for batch in batches(shards, options.per_shard, epoch, options.seed):
            step = len(history.loss)
            logits, activations = network.forward(batch.images)
            loss, slope = cross_entropy(logits, batch.labels)
            if overflows and step == options.overflow_step:
                slope *= 2.0**20
            with np.errstate(over="ignore", invalid="ignore"):  # an overflow is an answer here, not a mistake
                for gradients in network.backward((slope * scale.value).astype(np.float16), activations):
                    exchange.add(gradients)
            mean = exchange.finish()
            overflow = not all(np.isfinite(gradient).all() for gradient in mean.values())
            if overflow:
                history.skipped.append(step)
            else:
                network.update(mean, scale.value, options.rate)
            history.loss.append(loss)
            history.scale.append(scale.value)
            scale.update(overflow)
            progress.set_postfix(loss=f"{loss:.4f}", skipped=len(history.skipped), refresh=False)
            progress.update()
    progress.close()
    return history


def count_right(network: Network, shards: list[Shard]) -> np.ndarray:
    """[right answers, samples] over the test parts of these shards."""
    right = sum(
        int((network.forward(s.test.images)[0].argmax(axis=1) == s.test.labels).sum()) for s in shards
    )
    return np.array([right, sum(len(s.test.labels) for s in shards)])


def distance_from_one_process(network: Network, options: argparse.Namespace) -> float:
    """Train on the same batches in one process without hpccoll; 0: the same weights, 1: as far as from the start."""
    shards = read_shards(options.folder, 0, 1)
    start, alone = Network(options.seed), Network(options.seed)
    train(alone, shards, Alone(), options, overflows=True, quiet=False)
    ours, theirs, origin = (
        np.concatenate([m.ravel() for m in n.masters.values()]) for n in (network, alone, start)
    )
    return float(np.linalg.norm(ours - theirs) / np.linalg.norm(theirs - origin))


def main() -> None:
    options = arguments()
    hpccoll.init()
    rank, size = hpccoll.rank(), hpccoll.size()
    if SHARDS % size:
        raise SystemExit(f"{size} ranks cannot share {SHARDS} shards evenly: use 1, 2, 3, 4, 6 or 12 ranks")
    threadpool_limits(1)  # one core a rank: BLAS threads of neighbours would fight for it
    if rank == 0:
        write_shards(options.folder)
    hpccoll.barrier()
    shards = read_shards(options.folder, rank, size)

    network, exchange = Network(options.seed), Mean(options.layers_per_group)
    overflowing = options.overflow_rank % size
    start = time.perf_counter()
    history = train(network, shards, exchange, options, overflows=rank == overflowing, quiet=rank != 0)
    seconds = time.perf_counter() - start

    losses = hpccoll.allreduce(np.array(history.loss), hpccoll.AVERAGE)
    right, tested = hpccoll.allreduce(count_right(network, shards))
    skipped = hpccoll.allgather_object(history.skipped)
    stats, nodes = hpccoll.world().stats(), hpccoll.cross_size()
    hpccoll.shutdown()
    if any(other != history.skipped for other in skipped):
        raise SystemExit(f"the ranks do not agree on the steps to skip: {skipped}")
    if rank != 0:
        return

    print(f"ranks {size}, nodes {nodes}: {len(losses)} steps in {seconds:.1f} s")
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}, accuracy {right / tested:.2%} of {tested} test samples")
    for step in history.skipped:
        print(
            f"step {step}: rank {overflowing} overflowed, all {size} ranks skipped it and halved the loss scale"
        )
    print(f"communication of rank 0\n{communication(stats, exchange.exposed, len(losses))}")

    facts = {"ranks": size, "nodes": nodes, "seconds": seconds, "accuracy": right / tested} | {
        name: str(value) for name, value in vars(options).items()
    }
    path = options.folder / f"run-{size}-ranks.h5"
    series = {"loss": losses, "loss_scale": history.scale, "skipped": history.skipped}
    write_record(path, series | {f"weights/{n}": m for n, m in network.masters.items()}, facts, stats)
    print(f"record: {path}")
    if options.verify:
        print("the same batches in one process, without hpccoll:")
        distance = distance_from_one_process(network, options)
        print(f"distance of the weights {distance:.4f} of the way trained; tolerated {TOLERANCE}")
        if not distance <= TOLERANCE:
            raise SystemExit("the weights differ from the one-process run by more than rounding explains")


if __name__ == "__main__":
    main()
