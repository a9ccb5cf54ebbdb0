# SPDX-License-Identifier: Apache-2.0
"""What a program sees of the library: dir(), tab completion and `from hpccoll import *` show public names."""

import inspect
import pickle
import rlcompleter
import subprocess
import sys

import pytest

import hpccoll

MODULES = set(
    "data elastic frontend io jax keras mxnet net observe ray rendezvous spark study tensorflow testing torch".split()
)  # fmt: skip
"""Modules for programs, which show once they are imported."""
OPERATIONS = {name for name in hpccoll.__all__ if inspect.ismethod(getattr(hpccoll, name))}
WORLD = OPERATIONS | set(
    "cart cross_rank cross_size local_rank local_size lost_ranks progress rank shared_array shutdown size split "
    "stats subset".split()
)  # fmt: skip


def shown(thing: object) -> set[str]:
    return {name for name in dir(thing) if not name.startswith("_")}


def test_the_package_shows_what_it_exports():
    assert set(hpccoll.__all__) <= shown(hpccoll) <= set(hpccoll.__all__) | MODULES
    assert "__version__" in dir(hpccoll)
    assert all(hasattr(hpccoll, name) for name in dir(hpccoll))


def test_star_and_dir_agree_in_a_fresh_process():
    program = (
        "import hpccoll; seen = {n for n in dir(hpccoll) if n[0] != '_'}; names = {}; "
        "exec('from hpccoll import *', names); del names['__builtins__']; print(sorted(seen ^ set(names)))"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert set(eval(run.stdout)) <= {"net", "observe", "rendezvous"}  # loaded by the library itself


def test_each_operation_is_a_function_and_a_method():
    own = {name for name, value in vars(hpccoll.World).items() if inspect.isfunction(value)}
    methods = {n for n, value in inspect.getmembers(hpccoll.World, inspect.isfunction) if not n.startswith("_")} - own
    assert {"allreduce", "send", "scan_async", "gather", "allreduce_init", "capsule"} <= methods == OPERATIONS
    for name in OPERATIONS:
        function = getattr(hpccoll, name)
        assert function.__func__ is getattr(hpccoll.World, name)
        assert pickle.loads(pickle.dumps(function)) == function


def test_a_function_works_in_the_world_that_there_is():
    allreduce = hpccoll.allreduce
    for _ in range(2):
        with pytest.raises(hpccoll.ShutDownError, match=r"call hpccoll.init\(\) first"):
            allreduce(1)
        with pytest.raises(hpccoll.ShutDownError, match=r"call hpccoll.init\(\) first"):
            hpccoll.send_init(b"x", 0)
        hpccoll.init(verbose=0)
        assert allreduce(1) == hpccoll.world().allreduce(1) == 1
        hpccoll.shutdown()


@pytest.mark.parametrize("of", ["class", "instance", "empty"])
def test_a_world_shows_what_programs_use(threads, of):
    worlds = threads(1)
    thing = {"class": hpccoll.World, "instance": worlds[0], "empty": worlds[0].split(None)}[of]
    assert shown(thing) == WORLD


def test_tab_completion(threads):
    world = threads(1)[0]
    completer = rlcompleter.Completer({"hpccoll": hpccoll, "world": world})
    offered = {match.rstrip("()") for match in completer.attr_matches("world.")}
    assert offered == {f"world.{name}" for name in WORLD}
    offered = {match.rstrip("()").removeprefix("hpccoll.") for match in completer.attr_matches("hpccoll.")}
    assert offered <= set(hpccoll.__all__) | MODULES
