"""A program for Horovod and TensorFlow 2, of the structure of Horovod's example; the test changes the import alone."""

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits


def digits():
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(images))
    return images[order].reshape(-1, 8, 8, 1), labels[order]


def network():
    return tf.keras.Sequential(
        [
            tf.keras.layers.Conv2D(16, [3, 3], activation="relu"),
            tf.keras.layers.MaxPooling2D(pool_size=(2, 2)),
            tf.keras.layers.Dropout(0.25),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(64, activation="relu"),
            tf.keras.layers.Dense(10, activation="softmax"),
        ]
    )


def main():
    # Horovod: initialize Horovod.
    hvd.init()

    # Horovod: pin the GPU of this process by its local rank.
    gpus = tf.config.experimental.list_physical_devices("GPU")
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
    if gpus:
        tf.config.experimental.set_visible_devices(gpus[hvd.local_rank()], "GPU")

    images, labels = digits()
    dataset = tf.data.Dataset.from_tensor_slices(
        (tf.cast(images[:1440] / 16.0, tf.float32), tf.cast(labels[:1440], tf.int64))
    )
    dataset = dataset.repeat().shuffle(2000).batch(32)

    model = network()
    loss = tf.losses.SparseCategoricalCrossentropy()

    # Horovod: adjust learning rate based on number of GPUs.
    opt = tf.optimizers.Adam(0.003 * hvd.size())

    checkpoint = tf.train.Checkpoint(model=model, optimizer=opt)

    @tf.function
    def training_step(images, labels, first_batch):
        with tf.GradientTape() as tape:
            probs = model(images, training=True)
            loss_value = loss(labels, probs)

        # Horovod: add Horovod Distributed GradientTape.
        tape = hvd.DistributedGradientTape(tape)

        grads = tape.gradient(loss_value, model.trainable_variables)
        opt.apply_gradients(zip(grads, model.trainable_variables))  # noqa: B905 - as in the example

        # Horovod: broadcast initial variable states from rank 0 to all other processes, after the first step, so that
        # the optimizer is initialized.
        if first_batch:
            hvd.broadcast_variables(model.variables, root_rank=0)
            hvd.broadcast_variables(opt.variables, root_rank=0)  # before Keras 3 it was opt.variables()

        return loss_value

    # Horovod: adjust number of steps based on number of GPUs.
    for batch, (images_of_batch, labels_of_batch) in enumerate(dataset.take(600 // hvd.size())):
        loss_value = training_step(images_of_batch, labels_of_batch, batch == 0)
        if batch % 100 == 0 and hvd.local_rank() == 0:
            print(f"Step #{batch}\tLoss: {loss_value:.6f}")

    # Horovod: save checkpoints only on worker 0 to prevent other workers from corrupting it.
    if hvd.rank() == 0:
        checkpoint.save("./checkpoints")
        guesses = np.argmax(model(images[1440:].astype("float32") / 16), axis=1)
        print("Test accuracy:", np.mean(guesses == labels[1440:]))


if __name__ == "__main__":
    main()
