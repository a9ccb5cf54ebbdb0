# SPDX-License-Identifier: Apache-2.0
"""Gives every reduction, under all its names, to every front end on two ranks; test_reductions.py starts it.

Each rank's values are its number plus one. The expected results are NumPy's, and those of Adasum's formula.
"""

import functools
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
import tensorflow as tf
import torch

import hpccoll
import hpccoll.jax as hvd_jax
import hpccoll.keras as hvd_keras
import hpccoll.tensorflow as hvd_tf
import hpccoll.torch as hvd

hvd.init()
RANK = hvd.rank()
BROUGHT = np.array([1, 2])

HOROVOD = {"Average": 0, "Sum": 1, "Adasum": 2, "Min": 3, "Max": 4, "Product": 5}
"""The numbers of horovod/common/operations.h."""
FLOATS = {
    "SUM": BROUGHT.sum(), "AVERAGE": BROUGHT.mean(), "MIN": BROUGHT.min(), "MAX": BROUGHT.max(),
    "PRODUCT": BROUGHT.prod(),
}  # fmt: skip
INTEGERS = {
    "BAND": np.bitwise_and.reduce(BROUGHT), "BOR": np.bitwise_or.reduce(BROUGHT),
    "BXOR": np.bitwise_xor.reduce(BROUGHT), "LAND": np.logical_and.reduce(BROUGHT),
    "LOR": np.logical_or.reduce(BROUGHT), "LXOR": np.logical_xor.reduce(BROUGHT),
}  # fmt: skip
A, B = BROUGHT
ADASUM = (1 - A * B / (2 * A * A)) * A + (1 - A * B / (2 * B * B)) * B

Forms = dict[str, Callable[[Any, Any], Any]]
"""By its name, a function of an array and of a reduction, whose results are the reduction of all elements."""


def of_numpy() -> Forms:
    return {
        "allreduce": lambda x, op: hpccoll.allreduce(x, op),
        "allreduce named": lambda x, op: hpccoll.allreduce(x, op, name="x"),
        "allreduce of a group": lambda x, op: hpccoll.allreduce([x, x], op)[1],
        "allreduce_async": lambda x, op: hpccoll.allreduce_async(x, op).wait(),
        "allreduce_init": lambda x, op: hpccoll.allreduce_init(x, op)(),
        "reduce": lambda x, op: [hpccoll.reduce(x, op=op, root=root) for root in (0, 1)][RANK],
        "reduce_async": lambda x, op: [hpccoll.reduce_async(x, op=op, root=root).wait() for root in (0, 1)][RANK],
        "reduce_init": lambda x, op: [hpccoll.reduce_init(x, op=op, root=root)() for root in (0, 1)][RANK],
        "reducescatter": lambda x, op: hpccoll.reducescatter(x, op),
        "reducescatter_async": lambda x, op: hpccoll.reducescatter_async(x, op).wait(),
        "reducescatter_init": lambda x, op: hpccoll.reducescatter_init(x, op)(),
    }


def of_torch() -> Forms:
    def stepped(x: torch.Tensor, op: Any) -> torch.Tensor:
        weight = torch.nn.Parameter(torch.zeros_like(x))
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], 1.0), op=op)
        (weight * x).sum().backward()
        optimizer.step()
        return -weight.detach()

    return {
        "allreduce": lambda x, op: hvd.allreduce(x, op=op),
        "allreduce_": lambda x, op: hvd.allreduce_(x.clone(), op=op),
        "allreduce_async": lambda x, op: hvd.synchronize(hvd.allreduce_async(x, op=op)),
        "grouped_allreduce": lambda x, op: hvd.grouped_allreduce([x, x], op=op)[1],
        "reduce": lambda x, op: [hvd.reduce(x, op=op, root_rank=root) for root in (0, 1)][RANK],
        "reducescatter": lambda x, op: hvd.reducescatter(x, op=op),
        "grouped_reducescatter": lambda x, op: hvd.grouped_reducescatter([x, x], op=op)[1],
        "DistributedOptimizer": stepped,
    }


def of_tensorflow() -> Forms:
    eager: Forms = {
        "allreduce": lambda x, op: hvd_tf.allreduce(x, op=op, name="x"),
        "grouped_allreduce": lambda x, op: hvd_tf.grouped_allreduce([x, x], op=op, name="group")[1],
        "reducescatter": lambda x, op: hvd_tf.reducescatter(x, op=op, name="rows"),
    }

    def graph(form: Callable[[Any, Any], Any], **how: bool) -> Callable[[Any, Any], Any]:
        return lambda x, op: tf.function(lambda x: form(x, op), **how)(x)

    def tape(x: Any, op: Any) -> Any:
        v = tf.Variable(tf.zeros_like(x), name="v")
        with hvd_tf.DistributedGradientTape(tf.GradientTape(), op=op) as taped:
            loss = tf.reduce_sum(v * x)
        return taped.gradient(loss, v)

    forms = eager | {f"{name} in tf.function": graph(form) for name, form in eager.items()}
    if XLA:
        forms["allreduce, compiled"] = graph(eager["allreduce"], jit_compile=True)
    return forms | {"DistributedGradientTape": tape}


def of_jax() -> Forms:
    eager: Forms = {
        "allreduce": lambda x, op: hvd_jax.allreduce(x, op),
        "grouped_allreduce": lambda x, op: hvd_jax.grouped_allreduce([x, x], op)[1],
        "reducescatter": lambda x, op: hvd_jax.reducescatter(x, op),
        "reduce": lambda x, op: [hvd_jax.reduce(x, op=op, root_rank=root) for root in (0, 1)][RANK],
        "allreduce_gradients": lambda x, op: hvd_jax.allreduce_gradients({"w": x}, op)["w"],
    }

    def compiled(form: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        return lambda x, op: jax.jit(lambda x: form(x, op))(x)

    return eager | {f"{name} in jit": compiled(form) for name, form in eager.items()}


def of_keras() -> Forms:
    def updated(x: Any, op: Any) -> Any:
        v = keras.Variable(np.zeros(2, "float32"))
        optimizer = hvd_keras.DistributedOptimizer(keras.optimizers.SGD(1.0), op=op)
        optimizer.apply([keras.ops.convert_to_tensor(x)], [v])
        return -v.numpy()

    return {
        "allreduce": lambda x, op: hvd_keras.allreduce(x, op=op, name="array"),
        "allreduce of a tensor": lambda x, op: hvd_keras.allreduce(keras.ops.convert_to_tensor(x), op=op, name="x"),
        "reducescatter": lambda x, op: hvd_keras.reducescatter(x, op=op, name="rows"),
        "DistributedOptimizer": updated,
    }


MAKE_ADASUM = {
    "hpccoll.torch": (
        "allreduce", "allreduce_", "allreduce_async", "grouped_allreduce", "DistributedOptimizer"
    ),
    "hpccoll.tensorflow": (
        "allreduce", "grouped_allreduce", "allreduce in tf.function", "grouped_allreduce in tf.function",
        "DistributedGradientTape",
    ),
    "hpccoll.keras": ("allreduce of a tensor", "DistributedOptimizer"),
}  # fmt: skip
XLA = tuple(map(int, tf.__version__.split(".")[:2])) >= (2, 21)
FRONTS: list[tuple[str, Any, Forms, Callable[[Any], Any]]] = [
    ("hpccoll", hpccoll, of_numpy(), np.asarray),
    ("hpccoll.torch", hvd, of_torch(), torch.from_numpy),
    ("hpccoll.tensorflow", hvd_tf, of_tensorflow(), tf.convert_to_tensor),
    ("hpccoll.jax", hvd_jax, of_jax(), jnp.asarray),
    ("hpccoll.keras", hvd_keras, of_keras(), np.asarray),
]


def given_as(front: Any, name: str) -> list[Any]:
    """Return the library's reduction, its number, and the front end's name of Horovod's, which is the same object."""
    own = hpccoll.Reduction[name]
    if (word := name.capitalize()) not in HOROVOD:
        return [own]
    assert getattr(front, word, own) is own is getattr(hpccoll, name), (front, name)
    assert own.value == HOROVOD[word]
    return [own, HOROVOD[word]]


def check(label: str, form: str, got: Any, op: Any, wanted: Any) -> None:
    assert np.size(got) and (np.asarray(got) == np.float32(wanted)).all(), (label, form, op, got, wanted)


def compare(label: str, front: Any, forms: Forms, made: Callable[[Any], Any]) -> int:
    """Check each form against NumPy; return how many results there were."""
    checked = 0
    for dtype, table in (("float32", FLOATS), ("int32", INTEGERS)):
        x = made(np.full(2, BROUGHT[RANK], dtype))
        for name, form in itertools.product(table, forms):
            if table is INTEGERS and form.startswith("Distributed"):
                continue  # gradients are floats
            compiled = form.endswith((" in tf.function", ", compiled", " in jit"))
            for op in given_as(front, name)[: 1 if compiled else None]:  # the same code reads both, before it is traced
                check(label, form, forms[form](x, op), op, table[name])
                checked += 1
    return checked


def adasum(label: str, front: Any, forms: Forms, made: Callable[[Any], Any]) -> None:
    """Check Adasum: the allreduce of some front ends supports it; all other operations refuse it."""
    x = made(np.full(2, BROUGHT[RANK], np.float32))
    for form, op in itertools.product(forms, given_as(front, "ADASUM")):
        if form.endswith(", compiled"):
            continue  # XLA compiles no alltoall
        if form in MAKE_ADASUM.get(label, ()):
            check(label, form, forms[form](x, op), op, ADASUM)
        else:
            words = "hpccoll.jax has no Adasum" if label == "hpccoll.jax" else "ADASUM is for the allreduce of hpccoll."
            refused(functools.partial(forms[form], x, op), hpccoll.UnsupportedError, words)


def refused(call: Callable[[], Any], error: type[Exception], words: str) -> None:
    try:
        got = call()
    except error as raised:
        assert words in str(raised), (words, raised)
    else:
        raise AssertionError(f"{words}: not refused, but {got!r}")


def refuse(forms: Forms, made: Callable[[Any], Any]) -> None:
    """Check that other values are refused with the list of the reductions, before anything is sent."""
    x = made(np.ones(2, np.float32))
    for call in forms.values():
        for wrong in (True, np.bool_(False), "sum", 1.0, 6, [1]):
            listed = f"op is {wrong!r}: use one of hpccoll.AVERAGE, hpccoll.SUM, hpccoll.ADASUM, hpccoll.MIN, "
            refused(functools.partial(call, x, wrong), hpccoll.InvalidArgumentError, listed)


for one in FRONTS:
    refuse(*one[2:])
    adasum(*one)
    print(f"{one[0]}: {compare(*one)} results", flush=True)
hvd.shutdown()
