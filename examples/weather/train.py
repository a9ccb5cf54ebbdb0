# SPDX-License-Identifier: Apache-2.0
"""Simulate the weather on all ranks, and train a network on it meanwhile, which then makes a forecast.

    hpccoll run -np 2 python examples/weather/train.py
    srun -n 16 python examples/weather/train.py --cells 384 --days 40 --checkpoint weather.h5

One program: the simulation exchanges halos (`Cart`), the ranks of a node share the newest states (`shared_array`), the
network's gradients are averaged over all ranks by their names (`hpccoll.torch`), the trained network steps the divided
grid with the same halos, and one checkpoint has the fields and the network (`hpccoll.io`); a run of any number of ranks
goes on from it.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from atmosphere import HALO, Atmosphere
from emulator import LEAP, Emulator
from history import History
from pictures import draw
from tqdm import tqdm

import hpccoll
import hpccoll.io
import hpccoll.torch as hvd

HERE = Path(__file__).resolve().parent.parent / "data" / "weather"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="A simulation, and the training of its emulator, in one program.")
    parser.add_argument("--cells", type=int, default=96, help="cells per side of the grid")
    parser.add_argument("--days", type=int, default=12, help="a day is a stretch of simulation, and then of training")
    parser.add_argument("--leaps", type=int, default=24, help=f"a day has so many times {LEAP} steps of simulation")
    parser.add_argument("--updates", type=int, default=60, help="steps of the training in a day")
    parser.add_argument("--batch", type=int, default=16, help="windows per update, of all ranks together")
    parser.add_argument("--window", type=int, default=16, help="cells per side of a window")
    parser.add_argument("--rate", type=float, default=3e-3, help="learning rate of Adam")
    parser.add_argument("--forecast", type=int, default=20, help="leaps that the network forecasts at the end")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, default=HERE, help="where the picture lies")
    parser.add_argument("--checkpoint", type=Path, help="to go on from, if it is there, and to write after each day")
    return parser.parse_args()


class Program:
    """The simulation, the network, and what both have done so far."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, world = options, hpccoll.world()
        self.air = Atmosphere(world, options.cells)
        self.air.stir(options.seed)
        self.history = History(world, self.air, options.leaps + 1)
        torch.manual_seed(options.seed)
        self.network = Emulator()
        self.adam = torch.optim.Adam(self.network.parameters(), lr=options.rate)
        self.optimizer = hvd.DistributedOptimizer(self.adam, named_parameters=self.network.named_parameters())
        self.day, self.losses = 0, list[float]()

    # ---- a day -----------------------------------------------------------------------------------

    def simulate(self) -> None:
        self.history.count = 0
        self.history.keep()
        for _ in range(self.options.leaps):
            for _ in range(LEAP):
                self.air.step()
            self.history.keep()
        hpccoll.barrier()

    def learn(self) -> None:
        share = self.options.batch // hpccoll.size()
        random = np.random.default_rng([self.options.seed, self.day, hpccoll.rank()])
        total = 0.0
        for _ in range(self.options.updates):
            before, after = self.history.windows(random, share, self.options.window)
            self.optimizer.zero_grad()
            change = after - before[:, :, HALO:-HALO, HALO:-HALO]
            loss = torch.nn.functional.mse_loss(self.network(before), change) / change.var()
            loss.backward()
            self.optimizer.step()
            total += float(loss.detach())
        hpccoll.barrier()  # the next day overwrites the states
        self.losses.append(hpccoll.allreduce(total / self.options.updates, hpccoll.AVERAGE))

    def run(self) -> None:
        with tqdm(total=self.options.days - self.day, desc="days", disable=hpccoll.rank() != 0) as bar:
            while self.day < self.options.days:
                self.simulate()
                self.learn()
                self.day += 1
                if self.options.checkpoint:
                    self.save(self.options.checkpoint)
                bar.set_postfix(loss=f"{self.losses[-1]:.4f}", refresh=False)
                bar.update()

    # ---- checkpoints -----------------------------------------------------------------------------

    def _state(self) -> dict[str, list[torch.Tensor]]:
        weights = list(self.network.parameters())
        moments = [self.adam.state[weight] for weight in weights]
        return {
            "weights": [weight.data for weight in weights],
            "first moments": [each["exp_avg"] for each in moments],
            "second moments": [each["exp_avg_sq"] for each in moments],
        }

    def save(self, path: Path) -> None:
        """Write the fields, of which each rank has a part, and the network, which rank 0 writes."""
        arrays: dict[str, np.ndarray | hpccoll.io.Part] = {"fields": self.air.part()}
        for name, tensors in self._state().items():
            whole = torch.cat([tensor.flatten() for tensor in tensors]).numpy()
            arrays[name] = whole if hpccoll.rank() == 0 else whole[:0]
        attributes = {"day": self.day, "updates": self.day * self.options.updates, "losses": np.array(self.losses)}
        hpccoll.io.save(path, arrays, attrs=attributes)

    def load(self, path: Path) -> None:
        said = hpccoll.io.attributes(path)
        self.day, self.losses = int(said["day"]), said["losses"].tolist()
        self.air.own[:] = hpccoll.io.load(path, "fields", offset=self.air.offset, shape=self.air.own.shape)
        for weight in self.network.parameters():
            step = torch.tensor(float(said["updates"]))
            zeros = torch.zeros_like(weight), torch.zeros_like(weight)
            self.adam.state[weight] = {"step": step, "exp_avg": zeros[0], "exp_avg_sq": zeros[1]}
        for name, tensors in self._state().items():
            sizes = [tensor.numel() for tensor in tensors]
            whole = torch.from_numpy(hpccoll.io.load(path, name, offset=(0,), shape=(sum(sizes),)))
            for tensor, values in zip(tensors, whole.split(sizes), strict=True):
                tensor.copy_(values.view_as(tensor))


# ---- the forecast --------------------------------------------------------------------------------


class Forecast:
    """The weather as the network foresees it, beside the simulation's and beside weather that stays as it is."""

    def __init__(self, program: Program) -> None:
        air, network = program.air, program.network
        begin = air.own.copy()
        errors = []
        states = {"network": begin.copy(), "simulation": begin.copy()}
        for _ in range(program.options.forecast):
            air.own[:] = states["network"]
            air.fill_halo()
            states["network"] = network.leap(air.q)
            air.own[:] = states["simulation"]
            for _ in range(LEAP):
                air.step()
            states["simulation"] = air.own.copy()
            wrong = [states["network"] - states["simulation"], begin - states["simulation"], states["simulation"]]
            errors.append([float((x**2).sum()) for x in wrong])
        squares = hpccoll.allreduce(np.array(errors))  # sums over the grid
        self.of_network, self.of_no_change = np.sqrt(squares[:, :2] / squares[:, 2:]).T
        whole = hpccoll.io.Part.of_cart(air.cart, states["network"])
        self.begin, self.network, self.simulation = (
            gathered(x, whole.offset, whole.shape) for x in (begin, states["network"], states["simulation"])
        )

    def check(self, program: Program) -> float:
        """Make the forecast again in one process, on the whole grid; return the largest difference."""
        q = self.begin
        for _ in range(program.options.forecast):
            q = program.network.leap(np.pad(q, ((0, 0), (HALO, HALO), (HALO, HALO)), mode="wrap"))
        return float(np.abs(q - self.network).max())


def gathered(part: np.ndarray, offset: tuple[int, ...], shape: tuple[int, ...]) -> np.ndarray:
    """Return the whole array on rank 0; elsewhere zeros."""
    whole = np.zeros(shape)
    parts = hpccoll.gather_object((offset, part))
    for at, values in parts or ():
        whole[tuple(slice(first, first + n) for first, n in zip(at, values.shape, strict=True))] = values
    return whole


def main() -> None:
    options = arguments()
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    if options.batch % size:
        raise SystemExit(f"--batch {options.batch} cannot be shared by {size} ranks")
    torch.set_num_threads(1)  # one core per rank: threads of neighbours would compete for it
    try:
        program = Program(options)
    except ValueError as error:
        raise SystemExit(f"--cells: {error}") from None
    if min(program.air.rows, program.air.columns) < options.window:
        raise SystemExit(f"--window {options.window} is larger than a rank's part of the grid")
    if options.checkpoint and options.checkpoint.exists():
        program.load(options.checkpoint)
    mass = hpccoll.allreduce(program.air.own[0].sum())
    program.run()
    drift = hpccoll.allreduce(program.air.own[0].sum()) - mass
    forecast = Forecast(program)
    hvd.shutdown()
    if rank != 0:
        return
    difference = forecast.check(program)
    print(f"ranks {size}, {options.cells}^2 cells: {program.day} days; the mass has changed by {drift:.1e}")
    print(f"loss {program.losses[0]:.4f} -> {program.losses[-1]:.4f} of the variance of a leap")
    print(
        f"a forecast of {options.forecast} leaps: error {forecast.of_network[-1]:.1%}; "
        f"of no change {forecast.of_no_change[-1]:.1%}"
    )
    print(f"largest difference from the forecast in one process {difference:.1e}")
    print(f"picture: {draw(options.folder, forecast, program.losses)}")
    if difference > 1e-3:
        raise SystemExit("the forecasts of all ranks and of one process differ by more than rounding explains")


if __name__ == "__main__":
    main()
