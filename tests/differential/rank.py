# SPDX-License-Identifier: Apache-2.0
"""One rank of a differential job: runs the programs that the test process sends, and returns the results.

hpccoll run -np 2 python tests/differential/rank.py SOCKET numpy,c,torch,jax
"""

import os
import pickle
import sys
from importlib import import_module
from multiprocessing.connection import Client
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from differential import plants, process_sets
from differential.modes import NOT_FRAMEWORKS, Mode

import hpccoll


def load(front_ends: list[str], world: hpccoll.World) -> dict[str, Mode]:
    process_sets.make(world, None)
    for name in front_ends:
        if name not in NOT_FRAMEWORKS:
            import_module(f"hpccoll.{name}").init()
            process_sets.make(world, import_module(f"hpccoll.{name}"))
    found = [mode for name in front_ends for mode in import_module(f"differential.modes_{name}").modes()]
    return {mode.name: mode for mode in found}


def main() -> None:
    address, front_ends = sys.argv[1], sys.argv[2].split(",")
    world = hpccoll.init()
    plants.plant(os.environ.get("DIFFERENTIAL_PLANT", ""))
    modes = load(front_ends, world)
    facts = {name: mode.can for name, mode in modes.items()}
    with Client(address) as parent:
        parent.send((world.rank, facts))
        while (task := parent.recv()) is not None:
            name, program = task
            try:
                results = modes[name].run(program.of(world.rank), world.rank, world.size)
                parent.send_bytes(pickle.dumps(("results", results), protocol=5))  # with 4, >i4 becomes <i4
            except Exception as error:  # noqa: BLE001 - every error is an answer
                parent.send(("error", f"{type(error).__name__}: {error}"))
    hpccoll.shutdown()


if __name__ == "__main__":
    main()
