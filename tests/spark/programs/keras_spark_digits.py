# SPDX-License-Identifier: Apache-2.0
"""A program in the shape of Horovod's example for Keras on Spark, with digits of scikit-learn in a libsvm file."""

import argparse
import sys
from pathlib import Path

import keras
import numpy as np
import pyspark.sql.types as T
from keras.layers import Conv2D, Dense, Dropout, Flatten
from keras.models import Sequential
from pyspark import SparkConf
from pyspark.ml.evaluation import MulticlassClassificationEvaluator
from pyspark.ml.feature import OneHotEncoder
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf
from sklearn.datasets import dump_svmlight_file, load_digits

import hpccoll.spark.keras as hvd
from hpccoll.spark.common.backend import SparkBackend
from hpccoll.spark.common.store import Store

parser = argparse.ArgumentParser()
parser.add_argument("--master")
parser.add_argument("--num-proc", type=int)
parser.add_argument("--work-dir")
args = parser.parse_args()

if __name__ == "__main__":
    conf = SparkConf().setAppName("digits").set("spark.ui.enabled", "false").set("spark.sql.shuffle.partitions", "4")
    spark = SparkSession.builder.config(conf=conf.setMaster(args.master)).getOrCreate()
    store = Store.create(args.work_dir)
    digits = load_digits()
    path = str(Path(args.work_dir, "digits.libsvm"))
    dump_svmlight_file(digits.data / 16, digits.target, path, zero_based=False)
    df = spark.read.format("libsvm").option("numFeatures", "64").load(path)
    encoder = OneHotEncoder(inputCols=["label"], outputCols=["label_vec"], dropLast=False)
    train_df, test_df = encoder.fit(df).transform(df).randomSplit([0.9, 0.1], seed=1)

    model = Sequential()
    model.add(keras.Input((8, 8, 1)))
    model.add(Conv2D(8, kernel_size=(3, 3), activation="relu"))
    model.add(Flatten())
    model.add(Dropout(0.1))
    model.add(Dense(10, activation="softmax"))
    backend = SparkBackend(
        num_proc=args.num_proc, stdout=sys.stdout, stderr=sys.stderr, prefix_output_with_timestamp=True
    )
    keras_estimator = hvd.KerasEstimator(
        backend=backend,
        store=store,
        model=model,
        optimizer=keras.optimizers.Adadelta(1.0),
        loss=keras.losses.categorical_crossentropy,
        metrics=["accuracy"],
        feature_cols=["features"],
        label_cols=["label_vec"],
        batch_size=32,
        epochs=6,
        random_seed=1,
        inmemory_cache_all=True,
        verbose=2,
        callbacks=[keras.callbacks.TerminateOnNaN()],
    )
    keras_model = keras_estimator.fit(train_df).setOutputCols(["label_prob"])

    pred_df = keras_model.transform(test_df)
    argmax = udf(lambda v: float(np.argmax(v)), returnType=T.DoubleType())
    pred_df = pred_df.withColumn("label_pred", argmax(pred_df.label_prob))
    evaluator = MulticlassClassificationEvaluator(predictionCol="label_pred", labelCol="label", metricName="accuracy")
    print("Test accuracy:", evaluator.evaluate(pred_df))
    spark.stop()
