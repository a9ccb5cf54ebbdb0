# SPDX-License-Identifier: Apache-2.0
"""Train a language model of GPT-2's form on the licences that Debian ships, in BF16, on all ranks.

    hpccoll run -np 2 python examples/gpt/train.py
    srun -n 4 python examples/gpt/train.py --way fsdp --network small
    hpccoll run -np 2 python examples/gpt/train.py --way ddp-gloo --wire fp32

The batch of a step is the same for any number of ranks, and each rank adds up its part in --passes passes. The last
lines say how many tokens a second the ranks read and how much of a step is exposed communication; a picture shows the
losses.
"""

import argparse
import math
import statistics
import time
from pathlib import Path

import numpy as np
import torch
from curves import draw
from network import SIZES, Gpt
from text import Tokens, default_files, files_of, write_tokens
from tqdm import tqdm
from ways import WAYS, Alone

import hpccoll
import hpccoll.torch as hvd

HERE = Path(__file__).resolve().parent.parent / "data" / "gpt"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="A small GPT-2, data-parallel in BF16.")
    parser.add_argument("--network", choices=SIZES, default="tiny")
    parser.add_argument("--way", choices=WAYS, default="optimizer", help="who averages the gradients")
    parser.add_argument("--wire", choices=("bf16", "fp32"), default="bf16", help="what gradients travel as")
    parser.add_argument("--compute", choices=("bf16", "fp32"), default="bf16", help="what products are computed in")
    parser.add_argument("--recompute", action="store_true", help="compute activations again instead of keeping them")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=16, help="windows per step, of all ranks together")
    parser.add_argument("--passes", type=int, default=2, help="backward passes a step (gradient accumulation)")
    parser.add_argument("--rate", type=float, default=1e-3, help="highest learning rate")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--text", type=Path, nargs="+", metavar="FILE", help="texts to train on")
    parser.add_argument("--folder", type=Path, default=HERE, help="where the tokens and the picture lie")
    parser.add_argument("--checkpoint", type=Path, help="to continue from, if it is there, and to write at the end")
    parser.add_argument("--stop-after", type=int, help="steps after which to end early, as if time had run out")
    parser.add_argument("--verify", action="store_true", help="train again in one process and compare")
    return parser.parse_args()


class Training:
    """One rank's training.

    :param rank: this rank of `size` ranks, which share each batch
    """

    def __init__(self, options: argparse.Namespace, tokens: Tokens, way: type[Alone], rank: int, size: int) -> None:
        self.options, self.tokens, self.rank, self.size = options, tokens, rank, size
        torch.manual_seed(options.seed)
        network = Gpt(SIZES[options.network], options.recompute)
        self.one_pass = self._seconds_of_a_pass(network)
        self.way = way(network, options.passes, options.wire == "bf16")
        self.done, self.losses, self.seconds = 0, list[float](), list[float]()

    def _loss(self, model: torch.nn.Module, windows: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=self.options.compute == "bf16"):
            loss: torch.Tensor = model(windows)
        return loss

    def _windows(self, step: int, number: int) -> torch.Tensor:
        """Return this rank's windows of a pass: the batch is cut by passes, then by ranks."""
        part = self.options.batch // self.options.passes // self.size
        begin = number * part * self.size + self.rank * part
        mine = slice(begin, begin + part)
        return self.tokens.batch([self.options.seed, step], self.options.batch, mine)

    def _seconds_of_a_pass(self, network: Gpt) -> float:
        """Time passes without communication."""
        times = []
        for _ in range(4):
            began = time.perf_counter()
            self._loss(network, self._windows(0, 0)).backward()
            times.append(time.perf_counter() - began)
        network.zero_grad()
        return statistics.median(times[1:])

    def _rate(self) -> float:
        """Return the learning rate: a tenth of the steps warms up, then it falls like a cosine to a tenth."""
        warm = max(1, self.options.steps // 10)
        if self.done < warm:
            return float(self.options.rate * (self.done + 1) / warm)
        part = (self.done - warm) / max(1, self.options.steps - warm)
        return float(self.options.rate * (0.55 + 0.45 * math.cos(math.pi * part)))

    def step(self) -> None:
        began, passes, total = time.perf_counter(), self.options.passes, 0.0
        for number in range(passes):
            with self.way.accumulating(last=number + 1 == passes):
                loss = self._loss(self.way.model, self._windows(self.done, number)) / passes
                loss.backward()
            total += float(loss.detach())
        self.way.finish()
        self.seconds.append(time.perf_counter() - began)
        self.way.step(self._rate())
        self.losses.append(total)
        self.done += 1

    def run(self) -> None:
        """Train until the last step, or until --stop-after."""
        last = min(self.options.steps, self.options.stop_after or self.options.steps)
        with tqdm(total=last - self.done, desc="training", unit="step", disable=self.rank != 0) as bar:
            while self.done < last:
                self.step()
                bar.set_postfix(loss=f"{self.losses[-1]:.3f}", refresh=False)
                bar.update()

    @torch.no_grad()
    def validation_loss(self) -> float:
        """Return the loss of this rank's part of 64 or more windows that were not trained on."""
        self.way.model.eval()
        count = self.size * math.ceil(64 / self.size)  # each rank has as many
        mine = slice(self.rank, count, self.size)
        return float(self._loss(self.way.model, self.tokens.batch([self.options.seed], count, mine, validation=True)))

    def summary(self) -> str:
        """Say how the time of a step was spent, without the update of the weights."""
        step = statistics.fmean(self.seconds)
        exposed = max(0.0, step - self.options.passes * self.one_pass)
        tokens = self.options.batch * self.tokens.context
        return (
            f"  {tokens / step:,.0f} tokens per second, all ranks; {1e3 * step:.1f} ms a step\n"
            f"  {exposed / step:.1%} of the time is exposed communication"
        )


def tokens_of(options: argparse.Namespace, rank: int) -> Tokens:
    """Map the tokens into memory. Rank 0 writes them before, unless the tokens of these files are there."""
    path = options.folder / "tokens.h5"
    if rank == 0:
        options.folder.mkdir(parents=True, exist_ok=True)
        files = options.text or default_files()
        if files_of(path) != files or any(file.stat().st_mtime > path.stat().st_mtime for file in files):
            write_tokens(path, files)
    hpccoll.barrier()
    return Tokens(path, SIZES[options.network].context)


def verify(options: argparse.Namespace, tokens: Tokens, losses: np.ndarray) -> np.ndarray:
    """Train the same in one process, and compare the losses of all steps."""
    print("the same training in one process, without communication:")
    alone = Training(options, tokens, Alone, 0, 1)
    alone.run()
    compared = np.array(alone.losses)
    difference = float(np.abs(losses / compared - 1).max())
    halves = "bf16" in (options.wire, options.compute)
    tolerance = 0.05 if halves else 0.002  # sums in another order; training amplifies what is rounded
    print(
        f"loss {compared[0]:.3f} -> {compared[-1]:.3f}; largest difference {difference:.2%}, tolerated {tolerance:.1%}"
    )
    if not difference <= tolerance:
        raise SystemExit("the losses differ from those of one process by more than rounding explains")
    return compared


def main() -> None:
    options = arguments()
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    if options.batch % (size * options.passes):
        raise SystemExit(f"--batch {options.batch} cannot be shared by {size} ranks in {options.passes} passes")
    torch.set_num_threads(1)  # one core per rank: threads of neighbours would compete for it
    tokens = tokens_of(options, rank)
    training = Training(options, tokens, WAYS[options.way], rank, size)
    if options.checkpoint and options.checkpoint.exists():
        training.done, losses = training.way.load(options.checkpoint)
        training.losses = losses.tolist()
    training.run()
    losses = hpccoll.allreduce(np.array(training.losses), hpccoll.AVERAGE)
    if options.checkpoint:
        training.way.save(options.checkpoint, training.done, losses)
    validation = hpccoll.allreduce(training.validation_loss(), hpccoll.AVERAGE)
    weights = sum(weight.numel() for weight in training.way.network.parameters())
    training.way.close()
    hvd.shutdown()
    if rank != 0:
        return
    print(f"ranks {size}, {options.way}, {weights:,} weights: {training.done} of {options.steps} steps")
    print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f} nats per token, validation {validation:.3f}")
    if training.seconds:
        print(training.summary())
    compared = verify(options, tokens, losses) if options.verify else None
    print(f"picture: {draw(options.folder / f'losses-{options.way}.png', losses, compared, float(validation))}")


if __name__ == "__main__":
    main()
