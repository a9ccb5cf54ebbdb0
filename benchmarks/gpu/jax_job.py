# SPDX-License-Identifier: Apache-2.0
"""Checks hpccoll.jax with arrays on the GPU: outside of jit they go through host memory, inside it they are refused."""

import json
import os

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import jax.numpy as jnp
import numpy as np

import hpccoll.jax as hvd

DEVICE = os.environ.get("BENCHMARK_DEVICE", "gpu")


def operations(rank: int, size: int) -> None:
    """Check some operations of each kind, and where the results are."""
    for dtype in (jnp.float32, jnp.float16, jnp.bfloat16, jnp.int32):
        x = (jnp.arange(1000) % 5 + rank).astype(dtype)
        total = sum((np.arange(1000) % 5 + r) for r in range(size))
        result = hvd.allreduce(x, op=hvd.Sum)
        assert result.dtype == x.dtype and result.devices() == x.devices(), (result.devices(), x.devices())
        np.testing.assert_array_equal(np.asarray(result, np.float64), total)
        rows = hvd.allgather(jnp.full((rank + 1, 2), rank, dtype))
        wanted = [[r, r] for r in range(size) for _ in range(r + 1)]
        np.testing.assert_array_equal(np.asarray(rows, np.float64), wanted)
        given = hvd.broadcast(x, root_rank=size - 1)
        np.testing.assert_array_equal(np.asarray(given, np.float64), np.arange(1000) % 5 + size - 1)


def training(rank: int, size: int) -> None:
    """Check the mean of a loss's gradient, which jit computes and hpccoll reduces between two programs."""
    x = jax.random.normal(jax.random.key(rank), (64, 8))

    @jax.jit
    def gradient(w: jax.Array, x: jax.Array) -> jax.Array:
        return jax.grad(lambda w: jnp.mean((x @ w - 1.0) ** 2))(w)

    w = jnp.zeros(8)
    got = hvd.allreduce(gradient(w, x), name="gradient")
    every = [gradient(w, jax.random.normal(jax.random.key(r), (64, 8))) for r in range(size)]
    np.testing.assert_allclose(got, np.mean([np.asarray(g, np.float64) for g in every], axis=0), rtol=1e-5, atol=1e-6)


def refusal() -> str:
    """Return the error of a program for the GPU."""
    try:
        jax.jit(lambda x: hvd.allreduce(x, name="inside"))(jnp.ones(4)).block_until_ready()
    except Exception as e:  # noqa: BLE001 - JAX may wrap it
        return f"{type(e).__name__}: {e}"
    return ""


def main() -> None:
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    assert jax.devices()[0].platform == DEVICE, jax.devices()
    operations(rank, size)
    training(rank, size)
    said = refusal()
    assert "host" in said or DEVICE == "cpu", said
    if rank == 0:
        print(json.dumps({"what": "JAX on the GPU", "ranks": size, "refused": said[:300]}), flush=True)
    hvd.shutdown()


if __name__ == "__main__":
    main()
