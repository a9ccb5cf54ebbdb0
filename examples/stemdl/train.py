# SPDX-License-Identifier: Apache-2.0
"""Reconstruct a crystal's projected potential from its diffraction patterns: training in 16 bits, data-parallel.

    hpccoll run -np 2 python examples/stemdl/train.py
    srun -n 4 python examples/stemdl/train.py --average ddp

N. Laanait et al. scaled a job of this kind to 27,600 GPUs ("Exascale Deep Learning for Scientific Inverse Problems",
2019; Romero et al., NSDI'22); this one is for a laptop. It trains in half precision: autocast (float16 on a GPU,
bfloat16 on a CPU), a gradient scaler, and gradients that travel as float16. Each rank adds up its part of a batch in
--passes parts; the backward pass of the last part communicates while it still computes.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from averaging import WAYS, Averaging, make
from checkpoint import Checkpoint
from data import SHARDS, Batch, Samples, Scale, batches, write_shards
from meter import Meter, flops_of
from network import Reconstruction
from report import summary, write_record
from torch.nn import functional
from tqdm import tqdm

import hpccoll
import hpccoll.torch as hvd
from hpccoll import study

WARM_UP = 5
"""Steps that a scaling study leaves out."""
TOLERANCE = 0.25
"""The allowed relative difference of the validation error from that of a run in one process. Both runs round to 16
bits, in different places, and training amplifies that; runs with another seed differ by more."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Diffraction patterns to potentials, in half precision.")
    here = Path(__file__).resolve().parent.parent / "data" / "stemdl"
    parser.add_argument("--folder", type=Path, default=here, help="where the shards and the record lie")
    parser.add_argument("--samples", type=int, default=384, help="crystals to train on")
    parser.add_argument("--validation", type=int, default=96, help="crystals to validate on")
    parser.add_argument("--epochs", type=int, default=16)
    parser.add_argument("--batch", type=int, default=24, help="samples per step, of all ranks together")
    parser.add_argument("--local-batch", type=int, help="samples per step of each rank, in place of --batch")
    parser.add_argument("--passes", type=int, default=2, help="backward passes a step (local aggregation)")
    parser.add_argument("--rate", type=float, default=6e-3, help="highest learning rate")
    parser.add_argument("--growth", type=int, default=12, help="channels that a dense layer adds")
    parser.add_argument("--layers", type=int, default=3, help="dense layers a block")
    parser.add_argument("--levels", type=int, default=2, help="halvings of the resolution")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--average", choices=WAYS, default=WAYS[0], help="what averages the gradients")
    parser.add_argument("--wire", choices=("fp16", "fp32"), default="fp16", help="what gradients travel as")
    parser.add_argument("--checkpoint", type=Path, help="file to continue from, if it is there, and to write to")
    parser.add_argument("--stop-after", type=int, help="epochs after which to end early, as if time had run out")
    parser.add_argument("--verify", action="store_true", help="train again in one process and compare")
    return parser.parse_args()


class Training:
    """The state of one rank's training, and one step of it."""

    def __init__(self, options: argparse.Namespace, steps_an_epoch: int, size: int) -> None:
        self.options, self.size = options, size
        self.device = _device()
        torch.manual_seed(options.seed)
        model = Reconstruction(64, options.growth, options.layers, options.levels).to(self.device)
        self.plain = model
        self.scaler = torch.amp.GradScaler(self.device.type, init_scale=1024.0)
        self.steps_an_epoch = steps_an_epoch
        self.epoch, self.losses = 0, list[float]()
        self.meter = Meter()
        self.average_by(Averaging(model, torch.optim.AdamW(model.parameters(), lr=options.rate)))

    def average_by(self, averaging: Averaging) -> None:
        """Continue with another way to average, and its optimizer."""
        self.averaging = averaging
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(
            averaging.optimizer, self.options.rate, total_steps=self.options.epochs * self.steps_an_epoch
        )

    def forward(self, batch: Batch) -> torch.Tensor:
        """Return the mean square error of this batch's reconstruction."""
        half = torch.float16 if self.device.type == "cuda" else torch.bfloat16
        with torch.autocast(self.device.type, half):
            answer = self.averaging.model(batch.patterns.to(self.device))
        return functional.mse_loss(answer.float(), batch.potential.to(self.device))

    def one_pass(self, batch: Batch) -> float:
        """Run forward and backward; the gradients of a step's passes add up to their mean."""
        loss = self.forward(batch)
        self.scaler.scale(loss / self.options.passes).backward()
        return float(loss.detach())

    def calibrate(self, batch: Batch) -> int:
        """Time passes without communication, for the meter; return the FLOPs of a pass."""
        flops = flops_of(lambda: self.one_pass(batch))
        for _ in range(4):
            with self.meter.timing("alone", self.device):
                self.one_pass(batch)
        self.averaging.optimizer.zero_grad()
        self.meter.forget()
        return flops

    def step(self, parts: Iterator[Batch]) -> float:
        """Make one step of the optimizer; return the loss of this rank's part of the batch."""
        timing, loss = self.meter.timing, 0.0
        for number in range(self.options.passes):
            with timing("input", self.device):
                batch = next(parts)
            if number + 1 < self.options.passes:
                with timing("alone", self.device), self.averaging.silent():
                    loss += self.one_pass(batch)
            else:
                with timing("last", self.device):
                    loss += self.one_pass(batch)
        with timing("wait", self.device):
            self.averaging.finish()
        with timing("update", self.device):
            self.averaging.step(self.scaler)
            self.scaler.update()
            self.averaging.optimizer.zero_grad()
            self.schedule.step()
        self.meter.end_step()
        return loss / self.options.passes

    def run_epoch(self, parts: Iterator[Batch], bar: tqdm) -> None:
        for _ in range(self.steps_an_epoch):
            with study.step(items=self.options.batch // self.size):
                self.losses.append(self.step(parts))
            bar.set_postfix(loss=f"{self.losses[-1]:.4f}", refresh=False)
            bar.update()
        self.epoch += 1

    @torch.no_grad()
    def squared_errors(self, samples: Samples, scale: Scale, rank: int) -> np.ndarray:
        """Return [error, deviation from the mean]: sums of squares over this rank's part of the samples."""
        batch = scale.apply(*samples.read(np.arange(rank, samples.count, self.size)))
        error = float(self.forward(batch)) * batch.potential.numel()
        return np.array([error, float((batch.potential - batch.potential.mean()).square().sum())])


def _device() -> torch.device:
    if not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", hvd.local_rank() % torch.cuda.device_count())


def train(
    training: Training, samples: Samples, scale: Scale, rank: int, ends: Callable[[], bool] = lambda: False
) -> None:
    """Train for the remaining epochs.

    :param ends: called after each epoch; returns whether to stop early
    """
    options, size = training.options, training.size
    a_rank = options.batch // (size * options.passes)
    total = (options.epochs - training.epoch) * training.steps_an_epoch
    with tqdm(total=total, desc="training", unit="step", disable=rank != 0) as bar:
        while training.epoch < options.epochs:
            order = np.random.default_rng([options.seed, training.epoch]).permutation(samples.count)
            training.run_epoch(batches(samples, scale, a_rank, rank, size, order), bar)
            if ends():
                break


def train_and_save(training: Training, samples: Samples, scale: Scale, rank: int) -> None:
    """Train; save after each epoch, and end regularly when the job is about to be stopped."""
    options = training.options
    checkpoint = Checkpoint(options.checkpoint) if options.checkpoint else None
    if checkpoint:
        checkpoint.load(training)
    with hpccoll.preemption() as preemption:

        def ends() -> bool:
            if checkpoint:
                checkpoint.save(training)
            hpccoll.barrier()  # all ranks have waited for this, so all get the same answer now
            if preemption.should_stop():
                preemption.requeue()
                return True
            return training.epoch == options.stop_after

        train(training, samples, scale, rank, ends)


def error_of_one_process(options: argparse.Namespace, samples: Samples, held_out: Samples, scale: Scale) -> float:
    """Return the validation error of the same training in one process, without communication."""
    alone = Training(options, samples.count // options.batch, 1)
    alone.calibrate(scale.apply(*samples.read(np.arange(options.batch // options.passes))))
    train(alone, samples, scale, 0)
    error, deviation = alone.squared_errors(held_out, scale, 0)
    return error / deviation


def main() -> None:
    options = arguments()
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    options.batch = options.local_batch * size if options.local_batch else options.batch
    if options.batch % (size * options.passes):
        raise SystemExit(f"--batch {options.batch} cannot be shared by {size} ranks in {options.passes} passes")
    for kind in ("samples", "validation"):
        if vars(options)[kind] < SHARDS:
            raise SystemExit(f"--{kind} {vars(options)[kind]}: each of the {SHARDS} files holds a crystal or more")
    torch.set_num_threads(1)  # one core per rank: threads of neighbours would compete for it
    write_shards(options.folder, "training", options.samples, options.seed, rank, size)
    write_shards(options.folder, "validation", options.validation, options.seed, rank, size)
    hpccoll.barrier()
    samples, held_out = Samples(options.folder, "training"), Samples(options.folder, "validation")
    scale = Scale.of(samples, rank, size)

    training = Training(options, samples.count // options.batch, size)
    first = scale.apply(*samples.read(np.arange(options.batch // (size * options.passes))))
    flops = training.calibrate(first)
    training.average_by(make(options.average, training.averaging, options.passes, options.wire == "fp16"))
    began = time.perf_counter()
    train_and_save(training, samples, scale, rank)
    seconds = time.perf_counter() - began

    error, deviation = hpccoll.allreduce(training.squared_errors(held_out, scale, rank))
    losses = hpccoll.allreduce(np.array(training.losses), hpccoll.AVERAGE)
    nodes = hpccoll.cross_size()
    training.averaging.close()
    if len(losses) > WARM_UP:
        study.finish(WARM_UP)
    hvd.shutdown()
    if rank != 0:
        return
    print(f"ranks {size}, nodes {nodes}, {options.average}: {len(losses)} steps in {seconds:.1f} s")
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}, validation error {error / deviation:.2%} of the variance")
    print(summary(training.meter, flops * options.passes, size))
    path = options.folder / f"run-{size}-ranks.h5"
    write_record(path, training.meter, losses, options, error / deviation, flops * options.passes)
    print(f"record: {path}")
    if options.verify:
        print("the same training in one process, without communication:")
        alone = error_of_one_process(options, samples, held_out, scale)
        difference = abs(error / deviation - alone) / alone
        print(f"validation error {alone:.2%}; difference {difference:.1%} of it, tolerated {TOLERANCE:.0%}")
        if not difference <= TOLERANCE:
            raise SystemExit("the validation error differs from the one-process run's by more than rounding explains")


if __name__ == "__main__":
    main()
