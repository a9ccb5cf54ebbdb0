# SPDX-License-Identifier: Apache-2.0
"""The modules and names of Horovod that hpccoll does not have, and their replacements.

There is no file for modules such as `hpccoll.common`. If Python finds no module, it calls the finder of this module,
which raises the error, also for their submodules (`hpccoll.common.util`). Each front end gets the error for
a missing name from this module.
"""

import sys

__all__ = ["INSTEAD", "NAMES", "Finder", "missing", "no_name", "tell_imports"]

PAGE = "docs/not-there.md"

_PASSES = "give DistributedOptimizer() the number of passes: backward_passes_per_step=2"
INSTEAD = {
    "hpccoll._keras": "what programs import from horovod._keras is in hpccoll.keras",
    "hpccoll.tensorflow.gradient_aggregation": _PASSES,
    "hpccoll.tensorflow.gradient_aggregation_eager": _PASSES,
    "hpccoll.tensorflow.util": "use tf.executing_eagerly(), tf.function and functools.cache",
    "hpccoll.mxnet.mpi_ops": "the functions are in hpccoll.mxnet",
    "hpccoll.mxnet.functions": "the functions are in hpccoll.mxnet",
    "hpccoll.mxnet.compression": "Compression is in hpccoll.mxnet",
    "hpccoll.spark.data_loaders": (
        "there is no Petastorm: derive a class from hpccoll.data.BaseDataLoader, or use torch.utils.data.DataLoader"
    ),
    "hpccoll.runner": "its run() is hpccoll.run(); the launcher is `hpccoll run`, also `hpccoll horovodrun`",
    "hpccoll.common": (
        "what programs import from horovod.common is in hpccoll.torch: HorovodInternalError, HostsUpdatedInterrupt, "
        "ProcessSet, ..."
    ),
}
"""Each module, and the sentence of its ImportError."""

_EVERYWHERE = {
    "check_extension": "leave it out: the import of a front end fails where its framework is missing",
    "handle_average_backwards_compatibility": "give op=Average or op=Sum",
    "check_num_rank_power_of_2": "write `n & (n - 1) == 0`; Adasum checks it by itself",
    "num_rank_is_power_2": "write `n & (n - 1) == 0`; Adasum checks it by itself",
    "split_list": "give DistributedOptimizer() a number of groups: groups=4",
    "_basics": "init(), rank(), size() and the others are functions of the front end itself",
}
NAMES = {
    "hpccoll.torch": _EVERYWHERE
    | {
        "_handle_map": "keep the handles that the _async functions return; synchronize() takes one",
        "_check_function": "leave it out: every function checks its tensors",
    },
    "hpccoll.tensorflow": _EVERYWHERE
    | {
        "LocalGradientAggregationHelper": _PASSES,
        "_allreduce": "use allreduce(op=Sum)",
        "_grouped_allreduce": "use grouped_allreduce(op=Sum)",
        "_reducescatter": "use reducescatter(op=Sum)",
        "_grouped_reducescatter": "use grouped_reducescatter(op=Sum)",
        "_normalize_name": "leave it out: a name may be any text",
        "_make_subgraph": "use tf.function",
        "_cache": "use functools.cache",
        "vars_to_refs": "variable.ref() can be the key of a dict",
        "refs_to_vars": "variable.ref() can be the key of a dict; ref.deref() is the variable",
        "support_non_legacy_keras_optimizers": "leave it out: the optimizers of Keras 3 are those that it works with",
        "MPI_LIB": "its operations are the functions allreduce(), allgather(), ...",
    },
    "hpccoll.keras": _EVERYWHERE,
    "hpccoll.tensorflow.keras": _EVERYWHERE,
    "hpccoll.mxnet": _EVERYWHERE,
}
"""For each front end, the missing names of Horovod's that programs use, and the sentences of their errors."""


def missing(module: str) -> ImportError:
    """Make the error for an import of a module that is not there.

    :param module: its name, a key of INSTEAD
    """
    return ImportError(f"{module} is not there: {INSTEAD[module]}. See {PAGE} of hpccoll", name=module)


class Finder:
    """A finder for `sys.meta_path` that finds no module, and raises the error for a module of INSTEAD."""

    @staticmethod
    def find_spec(name: str, _path: object = None, _target: object = None) -> None:
        """Raise the error for a module that no other finder has found.

        :param name: of the module, in any package
        :raises ImportError: it is one of INSTEAD
        """
        if name in INSTEAD:
            raise missing(name)


def tell_imports() -> None:
    """Install the finder in this process."""
    if Finder not in sys.meta_path:
        sys.meta_path.append(Finder)


def no_name(module: str, name: str) -> AttributeError:
    """Make the error for a name that a front end does not have.

    :param module: of the front end, or one of its modules
    :param name: the name
    """
    front_end = next((one for one in sorted(NAMES, reverse=True) if f"{module}.".startswith(f"{one}.")), "")
    sentence = INSTEAD.get(f"{module}.{name}") or NAMES.get(front_end, {}).get(name)
    why = f": {sentence}. See {PAGE} of hpccoll" if sentence else ""
    return AttributeError(f"module {module!r} has no attribute {name!r}{why}", name=name)
