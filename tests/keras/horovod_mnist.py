# SPDX-License-Identifier: Apache-2.0
"""A program for Horovod and Keras, of the structure of Horovod's example; the test changes the import alone."""

import horovod.keras as hvd
import keras
import numpy as np
from sklearn.datasets import load_digits

# Horovod: initialize Horovod.
hvd.init()

batch_size = 32
num_classes = 10
epochs = 12

images, labels = load_digits(return_X_y=True)
order = np.random.default_rng(0).permutation(len(images))
images, labels = images[order].reshape(-1, 8, 8, 1).astype("float32") / 16, labels[order]
x_train, y_train, x_test, y_test = images[:1440], labels[:1440], images[1440:], labels[1440:]
x_train, y_train = x_train[hvd.rank() :: hvd.size()], y_train[hvd.rank() :: hvd.size()]
y_train = keras.utils.to_categorical(y_train, num_classes)
y_test = keras.utils.to_categorical(y_test, num_classes)

model = keras.models.Sequential()
model.add(keras.Input((8, 8, 1)))
model.add(keras.layers.Conv2D(16, kernel_size=(3, 3), padding="same", activation="relu"))
model.add(keras.layers.MaxPooling2D(pool_size=(2, 2)))
model.add(keras.layers.Dropout(0.25))
model.add(keras.layers.Flatten())
model.add(keras.layers.Dense(64, activation="relu"))
model.add(keras.layers.Dense(num_classes, activation="softmax"))

# Horovod: adjust learning rate based on number of GPUs.
scaled_lr = 0.003 * hvd.size()
opt = keras.optimizers.Adam(scaled_lr)

# Horovod: add Horovod Distributed Optimizer.
opt = hvd.DistributedOptimizer(opt)

model.compile(loss=keras.losses.CategoricalCrossentropy(), optimizer=opt, metrics=["accuracy"])

callbacks = [
    # Horovod: broadcast initial variable states from rank 0 to all other processes.
    hvd.callbacks.BroadcastGlobalVariablesCallback(0),
    # Horovod: average metrics among workers at the end of every epoch.
    hvd.callbacks.MetricAverageCallback(),
    # Horovod: using `lr = 1.0 * hvd.size()` from the very beginning leads to worse final accuracy.
    hvd.callbacks.LearningRateWarmupCallback(initial_lr=scaled_lr, warmup_epochs=3, verbose=1),
    keras.callbacks.ReduceLROnPlateau(patience=10, verbose=1),
]

model.fit(
    x_train,
    y_train,
    batch_size=batch_size,
    callbacks=callbacks,
    epochs=epochs,
    verbose=2 if hvd.rank() == 0 else 0,
    validation_data=(x_test, y_test),
)
score = hvd.allreduce(model.evaluate(x_test, y_test, verbose=0))
if hvd.rank() == 0:
    print("Test loss:", score[0])
    print("Test accuracy:", score[1])
