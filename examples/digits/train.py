# SPDX-License-Identifier: Apache-2.0
"""Train a network on handwritten digits: FP16, data-parallel, from HDF5 shards.

    hpccoll run -np 4 --nodes 2 python examples/digits/train.py
    mpirun -np 4 python examples/digits/train.py --verify
    mpirun -np 4 python examples/digits/train.py --device cuda
    srun python examples/digits/train.py --checkpoint run.h5

Each rank reads its shards and computes the gradients of its part of the batch; hpccoll averages them while the backward
pass still runs. The program makes one rank overflow at one step: its infinity reaches every rank in the reduced
gradient, so that all skip the same step and halve the loss scale without another message. With a checkpoint, the run
stops, saves and requeues itself at a signal or before the job's time ends, and continues when it is started again.
"""

import argparse
import os
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np
from data import SHARDS, Samples, Shard, batches, read_shards, steps_per_epoch, write_shards
from device import DEVICES, array_module, to_host, use
from exchange import Exchange, Mean, OneProcess
from network import Half, Network, cross_entropy
from record import communication, write_record
from state import History, LossScale, load, save
from threadpoolctl import threadpool_limits
from tqdm import tqdm

import hpccoll

TOLERANCE = 0.1  # distance to the weights of one process, as a share of that to the initial ones


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="FP16 data-parallel training on handwritten digits.")
    here = Path(__file__).resolve().parent.parent / "data" / "digits"
    parser.add_argument("--folder", type=Path, default=here, help="where the shards and the record lie")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--per-shard", type=int, default=8, help=f"samples per step from each of the {SHARDS} shards")
    parser.add_argument("--rate", type=float, default=0.02, help="learning rate")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--layers-per-group", type=int, default=3, help="layers whose gradients travel as one group")
    parser.add_argument("--overflow-step", type=int, default=20, help="step with a forced overflow; -1: none")
    parser.add_argument("--overflow-rank", type=int, default=-1, help="rank that overflows; -1: the last")
    parser.add_argument(
        "--checkpoint",
        type=Path,
        help="saved after each epoch and when the job is stopped; if it exists, continued",
    )
    parser.add_argument("--device", choices=DEVICES, default="cpu", help="cuda: on GPUs, with CuPy")
    parser.add_argument("--verify", action="store_true", help="train again in one process and compare the weights")
    return parser.parse_args()


def train(
    network: Network,
    shards: list[Shard],
    exchange: Exchange,
    options: argparse.Namespace,
    overflows: bool,
    after_step: Callable[[LossScale, History], bool] = lambda scale, history: False,
    resume: tuple[LossScale, History] | None = None,
    quiet: bool = False,
) -> History:
    """Train all epochs on this rank's shards, from the first step that `resume` lacks until `after_step` returns True.

    :param overflows: this rank overflows at options.overflow_step
    """
    scale, history = resume or (LossScale(), History())
    done = len(history.loss)
    progress = tqdm(total=total_steps(options), initial=done, unit="step", mininterval=0.5, disable=quiet)
    for batch in islice(all_batches(shards, options), done, None):
        step = len(history.loss)
        loss, mean = compute(network, batch, exchange, scale, overflows and step == options.overflow_step)
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
        if after_step(scale, history):
            break
    progress.close()
    return history


def total_steps(options: argparse.Namespace) -> int:
    return options.epochs * steps_per_epoch(options.per_shard)


def all_batches(shards: list[Shard], options: argparse.Namespace) -> Iterator[Samples]:
    for epoch in range(options.epochs):
        yield from batches(shards, options.per_shard, epoch, options.seed)


def compute(
    network: Network, batch: Samples, exchange: Exchange, scale: LossScale, overflow: bool
) -> tuple[float, dict[str, Half]]:
    """Return the loss of this rank's batch, and the mean of all ranks' (scaled) gradients."""
    images, labels = map(network.xp.asarray, batch)
    logits, activations = network.forward(images)
    loss, slope = cross_entropy(logits, labels)
    if overflow:
        slope *= 2.0**20
    with np.errstate(over="ignore", invalid="ignore"):  # an overflow is an expected result here
        for gradients in network.backward((slope * scale.value).astype(np.float16), activations):
            exchange.add(gradients)
    return loss, exchange.finish()


def train_until_stopped(
    network: Network, shards: list[Shard], exchange: Exchange, options: argparse.Namespace, overflows: bool
) -> History:
    """Continue from the checkpoint if there is one, save one if asked for, and stop when the job must end."""
    if not options.checkpoint:
        return train(network, shards, exchange, options, overflows, quiet=hpccoll.rank() != 0)
    resume = load(options.checkpoint, options, network) if options.checkpoint.exists() else None

    with hpccoll.preemption() as job:

        def keep(scale: LossScale, history: History) -> bool:
            stop = job.should_stop()
            if stop or len(history.loss) % steps_per_epoch(options.per_shard) == 0:
                save(options.checkpoint, options, network, scale, history)
            if stop:
                job.requeue()
            return stop

        quiet = hpccoll.rank() != 0
        return train(network, shards, exchange, options, overflows, keep, resume, quiet)


def count_right(network: Network, shards: list[Shard]) -> np.ndarray:
    """Return [right answers, samples] over the test parts of these shards."""
    right = 0
    for shard in shards:
        images, labels = map(network.xp.asarray, shard.test)
        right += int((network.forward(images)[0].argmax(axis=1) == labels).sum())
    return np.array([right, sum(len(s.test.labels) for s in shards)])


def distance_from_one_process(network: Network, options: argparse.Namespace) -> float:
    """Train on the same batches in one process without hpccoll; 0: the same weights, 1: as far as from the start."""
    shards = read_shards(options.folder, 0, 1)
    start, alone = Network(options.seed), Network(options.seed)
    train(alone, shards, OneProcess(), options, overflows=True)
    ours, theirs, origin = (
        np.concatenate([to_host(m).ravel() for m in n.masters.values()]) for n in (network, alone, start)
    )
    return float(np.linalg.norm(ours - theirs) / np.linalg.norm(theirs - origin))


def main() -> None:
    options = arguments()
    xp = array_module(options.device)
    hpccoll.init()
    use(xp, hpccoll.local_rank())
    rank, size = hpccoll.rank(), hpccoll.size()
    if SHARDS % size:
        raise SystemExit(f"{size} ranks cannot share {SHARDS} shards evenly: use 1, 2, 3, 4, 6 or 12 ranks")
    threadpool_limits(1)  # one core per rank: BLAS threads of other ranks would compete for it
    if rank == 0:
        write_shards(options.folder)
    hpccoll.barrier()
    shards = read_shards(options.folder, rank, size)

    network, exchange = Network(options.seed, xp), Mean(options.layers_per_group)
    overflowing = options.overflow_rank % size
    start = time.perf_counter()
    history = train_until_stopped(network, shards, exchange, options, overflows=rank == overflowing)
    seconds = time.perf_counter() - start
    if len(history.loss) < total_steps(options):
        if rank == 0:
            print(f"stopped after {len(history.loss)} of {total_steps(options)} steps, kept in {options.checkpoint}")
        return

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
        print(f"step {step}: rank {overflowing} overflowed, all {size} ranks skipped it and halved the loss scale")
    print(f"communication of rank 0\n{communication(stats, exchange.exposed, len(losses))}")

    facts = {"ranks": size, "nodes": nodes, "seconds": seconds, "accuracy": right / tested} | {
        name: str(value) for name, value in vars(options).items()
    }
    path = options.folder / f"run-{size}-ranks.h5"
    series = {"loss": losses, "loss_scale": history.scale, "skipped": history.skipped}
    write_record(path, series | {f"weights/{n}": to_host(m) for n, m in network.masters.items()}, facts, stats)
    print(f"record: {path}")
    if options.verify:
        cores = len(os.sched_getaffinity(0))
        print(
            f"the same batches in one process, which may use all {cores} cores, without hpccoll: its weights are "
            "compared, its time is not"
        )
        with threadpool_limits(cores):
            distance = distance_from_one_process(network, options)
        print(f"distance of the weights {distance:.4f} of the way trained; tolerated {TOLERANCE}")
        if not distance <= TOLERANCE:
            raise SystemExit("the weights differ from the one-process run by more than rounding explains")


if __name__ == "__main__":
    main()
