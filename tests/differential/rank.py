# SPDX-License-Identifier: Apache-2.0
"""One rank of a differential job: runs the programs that the test process sends, and sends back what came out.

hpccoll run -np 2 python tests/differential/rank.py SOCKET numpy,torch,jax
"""

import os
import sys
from importlib import import_module
from multiprocessing.connection import Client
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from differential import plants
from differential.modes import Mode

import hpccoll


def load(front_ends: list[str], world: hpccoll.World) -> dict[str, Mode]:
    found = [
        mode
        for name in front_ends
        for mode in import_module(f"differential.modes_{name}").modes(*([world] if name == "numpy" else []))
    ]
    return {mode.name: mode for mode in found}


def main() -> None:
    address, front_ends = sys.argv[1], sys.argv[2].split(",")
    world = hpccoll.init()
    for front_end in front_ends:
        if front_end != "numpy":
            import_module(f"hpccoll.{front_end}").init()
    plants.plant(os.environ.get("DIFFERENTIAL_PLANT", ""))
    modes = load(front_ends, world)
    facts = {name: (mode.operations, mode.dtypes, mode.derives) for name, mode in modes.items()}
    with Client(address) as parent:
        parent.send((world.rank, facts))
        while (task := parent.recv()) is not None:
            name, program = task
            try:
                parent.send(("results", modes[name].run(program.of(world.rank), world.rank, world.size)))
            except Exception as error:  # noqa: BLE001 - every error is an answer
                parent.send(("error", f"{type(error).__name__}: {error}"))
    hpccoll.shutdown()


if __name__ == "__main__":
    main()
