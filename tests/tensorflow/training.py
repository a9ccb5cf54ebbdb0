"""A Horovod program for TensorFlow 2 with one import changed, beside layers and optimizers: one rank of a job."""

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

import hpccoll.tensorflow as hvd

hvd.init()
rank, size = hvd.rank(), hvd.size()
tf.random.set_seed(rank)  # other weights on each rank, until the broadcast


def equal_on_all_ranks(variables):
    mine = np.concatenate([np.ravel(variable) for variable in variables])
    return all(np.array_equal(mine, other) for other in hvd.allgather_object(mine))


def a_network_learns_digits():
    images, labels = load_digits(return_X_y=True)
    images = (images / 16.0).reshape(-1, 8, 8, 1).astype(np.float32)
    order = np.random.default_rng(0).permutation(len(images))
    train, test = order[:1440], order[1440:]
    mine = train[rank::size]
    layers = tf.keras.layers
    network = tf.keras.Sequential(
        [layers.Conv2D(8, 3, activation="relu"), layers.MaxPooling2D(), layers.Flatten(), layers.Dense(10)]
    )
    loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = tf.keras.optimizers.Adam(0.005)

    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = loss_of(y, network(x, training=True))
        tape = hvd.DistributedGradientTape(tape, compression=hvd.Compression.bf16)
        gradients = tape.gradient(loss, network.trainable_variables)
        optimizer.apply_gradients(zip(gradients, network.trainable_variables, strict=True))
        return loss

    for epoch in range(12):
        for at in range(0, len(mine), 60):
            batch = mine[at : at + 60]
            step(images[batch], labels[batch])
            if epoch == at == 0:
                hvd.broadcast_variables(network.variables, root_rank=0)
                hvd.broadcast_variables(optimizer.variables, root_rank=0)
    assert equal_on_all_ranks(network.trainable_variables)
    accuracy = np.mean(np.argmax(network(images[test]), axis=1) == labels[test])
    assert accuracy > 0.9, accuracy
    print(f"rank {rank}: accuracy {accuracy:.3f}", flush=True)


def ranks_have_other_numbers_of_batches():
    total = tf.function(lambda x: hvd.allreduce(x, op=hvd.Sum, name="uneven"))
    for batch in range(2 + rank):
        present = sum(2 + other > batch for other in range(size))
        assert total(tf.ones(3))[0] == present
    last, one = hvd.join(), tf.function(hvd.join)()
    assert last.numpy() == size - 1 and one.numpy() in range(size)
    assert last.dtype == one.dtype == tf.int32 and last.shape == one.shape == []


def samples_of_all_ranks_are_normalized():
    samples = np.random.default_rng(1).normal(2.0, 3.0, (8 * size + 4, 5)).astype(np.float32)
    mine = samples[8 * rank : 8 * rank + 8] if rank < size - 1 else samples[8 * rank :]
    layer, plain = hvd.SyncBatchNormalization(), tf.keras.layers.BatchNormalization()
    expected = plain(samples, training=True).numpy()
    got = layer(mine, training=True).numpy()
    assert np.allclose(got, expected[8 * rank : 8 * rank + len(mine)], atol=1e-4)


def a_variance_beside_a_large_mean():
    """The statistics are those of NumPy, in float64, on all samples, eager and in tf.function, and so are gradients."""
    for dtype, offset in ((tf.float16, 100), (tf.bfloat16, 30), (tf.float32, 1e3), (tf.float64, 1e8)):
        normal = np.random.default_rng(1).normal(offset, 1.0, (16 * size, 5))
        samples = tf.constant(normal, tf.float64 if dtype == tf.float64 else tf.float32)
        samples = tf.cast(samples, dtype)
        exact = tf.cast(samples, tf.float64).numpy()
        policy = f"mixed_{dtype.name}" if dtype.size == 2 else dtype.name  # variables of 32 bits
        layer = hvd.SyncBatchNormalization(momentum=0.0, dtype=policy, name=f"of_{dtype.name}")
        mine = samples[16 * rank : 16 * rank + 16]

        def normalized(layer=layer, mine=mine):
            with tf.GradientTape() as tape:
                tape.watch(mine)
                result = layer(mine, training=True)
                loss = tf.reduce_sum(tf.cast(result, tf.float64) ** 3)
            return result, tape.gradient(loss, mine)

        for program in (normalized, tf.function(normalized)):
            result, gradient = program()
            assert result.dtype == gradient.dtype == dtype
            assert np.allclose(layer.moving_mean, exact.mean(0), rtol=1e-5)
            assert np.allclose(layer.moving_variance, exact.var(0), rtol=1e-4), (layer.moving_variance, exact.var(0))
            if dtype in (tf.float32, tf.float64):
                deviation = exact - exact.mean(0)
                scale = 1 / np.sqrt(exact.var(0) + layer.epsilon)
                y = deviation * scale
                slope = 3 * y**2
                back = scale * (slope - slope.mean(0) - y * (slope * y).mean(0))
                assert np.allclose(result, y[16 * rank : 16 * rank + 16], atol=1e-3)
                assert np.allclose(gradient, back[16 * rank : 16 * rank + 16], atol=1e-2)


def optimizers_of_sessions():
    with tf.Graph().as_default():
        v = tf.compat.v1.get_variable("v", initializer=[float(rank + 1)])
        optimizer = hvd.DistributedOptimizer(tf.compat.v1.train.GradientDescentOptimizer(1.0))
        step = optimizer.minimize(tf.reduce_sum(v * (rank + 1)))
        start = hvd.broadcast_global_variables(0)
        with tf.compat.v1.Session() as session:
            session.run(tf.compat.v1.global_variables_initializer())
            session.run(start)
            session.run(step)
            assert np.allclose(session.run(v), [1.0 - (size + 1) / 2])


optimizers_of_sessions()
ranks_have_other_numbers_of_batches()
samples_of_all_ranks_are_normalized()
a_variance_beside_a_large_mean()
a_network_learns_digits()
print(f"rank {rank}: trained", flush=True)
hvd.shutdown()
