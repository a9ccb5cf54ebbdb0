# SPDX-License-Identifier: Apache-2.0
"""Rank 1 is killed in the middle of fit(); rank 0 prints the error that ends its own."""

import os
import signal

import keras
import numpy as np

import hpccoll.keras as hvd

hvd.init()


class Kill(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        if batch == 5 and hvd.rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)


model = keras.Sequential([keras.Input((20,)), keras.layers.Dense(4)])
model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), "mse")
x = np.ones((1024, 20), np.float32)
try:
    model.fit(x, x[:, :4], batch_size=16, verbose=0, callbacks=[Kill()])
except Exception as error:  # noqa: BLE001 - the class is the backend's
    print(f"rank {hvd.rank()} saw it: {error}", flush=True)
else:
    print("nothing was seen", flush=True)
