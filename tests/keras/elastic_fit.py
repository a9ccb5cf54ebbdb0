# SPDX-License-Identifier: Apache-2.0
"""An elastic training with fit(); rank 0 is killed in its second epoch, and replaced."""

import os
import signal
import sys
from pathlib import Path

import keras
import numpy as np

import hpccoll.keras as hvd

EPOCHS, STEPS, RANKS, VICTIM = 4, 8, 3, Path(sys.argv[1])

hvd.init()
x = np.random.default_rng(0).standard_normal((STEPS * 8, 20)).astype("float32")
y = x[:, :1] * 2 + x[:, 1:2]
keras.utils.set_random_seed(hvd.rank())
model = keras.Sequential([keras.Input((20,)), keras.layers.Dense(1)])
model.compile(hvd.DistributedOptimizer(keras.optimizers.Adam(0.05)), "mse")


class Kill(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        if state.epoch == 1 and batch == 3 and hvd.rank() == 0 and not VICTIM.exists():
            VICTIM.write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGKILL)


@hvd.elastic.run
def train(state):
    callbacks = [
        Kill(),
        hvd.elastic.UpdateEpochStateCallback(state),
        hvd.elastic.UpdateBatchStateCallback(state),
        hvd.elastic.CommitStateCallback(state),
    ]
    while state.epoch < EPOCHS or state.batch or hvd.size() < RANKS:  # the rest of an epoch, then whole epochs
        epochs = 1 if state.batch else max(1, EPOCHS - state.epoch)
        model.fit(
            x[: (STEPS - state.batch) * 8], y[: (STEPS - state.batch) * 8], batch_size=8, epochs=epochs, verbose=0,
            callbacks=callbacks,
        )  # fmt: skip


state = hvd.elastic.KerasState(model, epoch=0, batch=0)
train(state)

weights = hvd.allgather_object([keras.ops.convert_to_numpy(v).tolist() for v in model.weights])
assert all(one == weights[0] for one in weights), "ranks have different weights"
iterations = int(keras.ops.convert_to_numpy(model.optimizer.iterations))
assert iterations == state.epoch * STEPS, iterations
if hvd.rank() == 0:
    print(f"{state.epoch} epochs, with {hvd.size()} ranks at the end")
