# SPDX-License-Identifier: Apache-2.0
"""The derivatives of all operations against the table of docs/gradients.md."""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hpccoll.jax as hvd

sys.path.insert(0, str(Path(__file__).parents[1]))
import gradient_table

pytestmark = [pytest.mark.mpi, pytest.mark.usefixtures("job")]
COLUMN = gradient_table.column("hpccoll.jax")


@pytest.mark.parametrize("operation", COLUMN)
def test_derivative(operation):
    rank, size, formula = hvd.rank(), hvd.size(), COLUMN[operation]

    def loss(x):
        result = gradient_table.calls(hvd)[operation](x)
        return (result * jnp.asarray(gradient_table.weights(rank, len(result)), x.dtype)).sum()

    for gradient in (jax.grad(loss), jax.jit(jax.grad(loss))):
        if formula == gradient_table.NONE:
            with pytest.raises((AttributeError, ValueError), match=r"no attribute|no derivative"):
                gradient(jnp.arange(1.0, size + 1))
        else:
            expected = gradient_table.expected(formula, operation, rank, size)
            np.testing.assert_allclose(gradient(jnp.arange(1.0, size + 1)), expected, rtol=1e-6)


def test_the_programs_are_those_of_the_table():
    assert set(COLUMN) == set(gradient_table.calls(hvd))
