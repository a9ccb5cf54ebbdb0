# SPDX-License-Identifier: Apache-2.0
"""A program in the shape of Horovod's example for the sales of shops: columns of categories and of numbers.

Each column is an input of the model, categories have embeddings, and the loss, a metric and the last activation are of
the program. The data are made here.
"""

import argparse
import sys

import keras
import numpy as np
import pyspark.sql.functions as F
from keras import ops
from keras.layers import BatchNormalization, Concatenate, Dense, Embedding, Flatten, Input, Reshape
from keras.models import Model
from pyspark import SparkConf
from pyspark.ml.feature import StringIndexer
from pyspark.sql import SparkSession

import hpccoll.spark.keras as hvd
from hpccoll.spark.common.backend import SparkBackend
from hpccoll.spark.common.store import Store

parser = argparse.ArgumentParser()
parser.add_argument("--master")
parser.add_argument("--num-proc", type=int)
parser.add_argument("--work-dir")
args = parser.parse_args()

CATEGORICAL, CONTINUOUS = ["Store", "DayOfWeek", "Promo", "StateHoliday"], ["CompetitionDistance", "Temperature"]
LARGEST = 9.0
"""The largest logarithm of sales."""


def act_scaled(x):
    return ops.sigmoid(x) * (LARGEST + 1)


def exp_rmspe(y_true, y_pred):
    """The root of the mean square of relative errors of sales."""
    y_true, y_pred = ops.exp(y_true), ops.exp(y_pred)
    return ops.sqrt(ops.mean(ops.square((y_true - y_pred) / y_true)))


def sales(spark, rows=4000):
    """Make a table whose sales depend on each column."""
    draw = np.random.default_rng(1)
    shop, day, promo = draw.integers(0, 20, rows), draw.integers(0, 7, rows), draw.integers(0, 2, rows)
    holiday, distance = draw.choice(["0", "a", "b"], rows, p=[0.8, 0.1, 0.1]), draw.random(rows)
    temperature = draw.normal(size=rows)
    logs = 6 + shop / 20 + 0.3 * promo - 0.2 * (day == 6) - 0.5 * (holiday != "0") + 0.4 * distance + 0.1 * temperature
    names = ["Store", "DayOfWeek", "Promo", "StateHoliday", "CompetitionDistance", "Temperature", "Sales"]
    columns = [shop, day, promo, holiday, distance, temperature, np.exp(logs)]
    return spark.createDataFrame(list(zip(*(column.tolist() for column in columns), strict=True)), names)


def network(sizes):
    inputs = {column: Input(shape=(1,), name=column) for column in CATEGORICAL + CONTINUOUS}
    embeddings = [Embedding(sizes[column], 4, name=f"emb_{column}")(inputs[column]) for column in CATEGORICAL]
    numbers = Concatenate()([Reshape((1, 1))(inputs[column]) for column in CONTINUOUS])
    x = Flatten()(Concatenate()([*embeddings, BatchNormalization()(numbers)]))
    x = Dense(64, activation="relu")(x)
    return Model([inputs[column] for column in CATEGORICAL + CONTINUOUS], Dense(1, activation=act_scaled)(x))


if __name__ == "__main__":
    conf = SparkConf().setAppName("sales").set("spark.ui.enabled", "false").set("spark.sql.shuffle.partitions", "4")
    spark = SparkSession.builder.config(conf=conf.setMaster(args.master)).getOrCreate()
    df = sales(spark)
    for column in CATEGORICAL:
        indexed = StringIndexer(inputCol=column, outputCol="index").fit(df).transform(df)
        df = indexed.drop(column).withColumnRenamed("index", column)
    df = df.withColumn("Sales", F.log("Sales")).withColumn("Validation", F.rand(seed=2) < 0.2)
    train_df, test_df = df.randomSplit([0.9, 0.1], seed=3)
    sizes = {column: int(df.agg(F.max(column)).first()[0]) + 1 for column in CATEGORICAL}

    keras_estimator = hvd.KerasEstimator(
        backend=SparkBackend(num_proc=args.num_proc, stdout=sys.stdout, stderr=sys.stderr),
        store=Store.create(args.work_dir),
        model=network(sizes),
        optimizer=keras.optimizers.Adam(learning_rate=0.005, epsilon=1e-3),
        loss="mae",
        metrics=[exp_rmspe],
        custom_objects={"exp_rmspe": exp_rmspe, "act_scaled": act_scaled},
        feature_cols=CATEGORICAL + CONTINUOUS,
        label_cols=["Sales"],
        validation="Validation",
        batch_size=100,
        epochs=8,
        verbose=2,
        random_seed=1,
    )
    keras_model = keras_estimator.fit(train_df).setOutputCols(["Sales_output"])
    print("Best RMSPE:", min(keras_model.getHistory()["val_exp_rmspe"]))

    pred_df = keras_model.transform(test_df)
    error = F.avg(F.abs(F.exp("Sales_output") / F.exp("Sales") - 1))
    print("Test error:", pred_df.withColumn("Sales_output", F.col("Sales_output").cast("double")).agg(error).first()[0])
    spark.stop()
