# SPDX-License-Identifier: Apache-2.0
"""Records when the gradients of a PyTorch model become ready, as a trace that `hpccoll bench training` replays.

A hook on each parameter notes the time at which its gradient has been accumulated. A trace holds shares of the step, so
that it can be replayed at the speed of another device; the shares themselves are those of the device that recorded.
"""

import importlib.util
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from hpccoll import durable
from hpccoll.tools.bench.results import Facts, ResultsError

STEPS, WARMUP = 5, 2
"""Steps that are recorded, and those before them."""


def record(what: str, out: Path) -> str:
    """Record a model and write its trace.

    :param what: `FILE.py:FUNCTION` or `MODULE:FUNCTION`; the function returns a module and a function without arguments
        that gives its loss
    :returns: what was recorded, in a sentence
    :raises ResultsError: the function cannot be found, or no parameter gets a gradient
    """
    try:
        torch: Any = import_module("torch")
    except ImportError:
        raise ResultsError("record: PyTorch is missing: pip install torch") from None
    module_name, given, name = what.rpartition(":")
    if not given:
        raise ResultsError(f"record {what}: FILE.py:FUNCTION, a function that returns a module and its loss")
    factory = getattr(_module(module_name), name, None)
    if factory is None:
        raise ResultsError(f"record {what}: there is no {name} in {module_name}")
    torch.manual_seed(1)
    model, loss = factory()
    about = " ".join((factory.__doc__ or "").split())
    trace = recorded(out.stem, model, loss)
    where = f"recorded by PyTorch {torch.__version__} on {_processor()}, {torch.get_num_threads()} threads"
    trace["source"] = f"{about}; {where}"
    durable.write_text(out, json.dumps(trace).replace('"gradients"', '\n"gradients"') + "\n")
    count = sum(n for n, _ in trace["gradients"])
    first, last = (trace["gradients"][i][1] for i in (0, -1))
    tensors = len(trace["gradients"])
    return f"{out}: {tensors} gradients, {count:,} elements, ready from {first:.0%} to {last:.0%} of a step"


def _module(name: str) -> ModuleType:
    """Import a module, or the file of one."""
    try:
        if not name.endswith(".py"):
            return import_module(name)
        spec = importlib.util.spec_from_file_location(Path(name).stem, name)
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        sys.path.insert(0, str(Path(name).parent))
        spec.loader.exec_module(module)
    except (ImportError, OSError) as error:
        raise ResultsError(f"record: {name}: {error}") from None
    return module


def recorded(model_name: str, model: Any, loss: Callable[[], Any]) -> Facts:
    """Record steps of a model.

    :raises ResultsError: no parameter gets a gradient
    """
    moments: dict[str, list[float]] = {}
    elements: dict[str, int] = {}

    def ready(name: str, parameter: Any) -> None:
        elements[name] = int(parameter.numel())
        moments.setdefault(name, []).append(time.perf_counter())

    for name, parameter in model.named_parameters():
        parameter.register_post_accumulate_grad_hook(partial(ready, name))
    shares: dict[str, list[float]] = {}
    for number in range(WARMUP + STEPS):
        model.zero_grad(set_to_none=True)
        moments.clear()
        began = time.perf_counter()
        loss().backward()
        seconds = time.perf_counter() - began
        for name, times in moments.items() if number >= WARMUP else ():
            shares.setdefault(name, []).append((times[-1] - began) / seconds)
    if not shares:
        raise ResultsError("record: no parameter of the model got a gradient")
    medians = sorted((statistics.median(values), name) for name, values in shares.items())
    return {"model": model_name, "gradients": [[elements[name], round(share, 5)] for share, name in medians]}


def _processor() -> str:
    """Return the processor of this machine."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
