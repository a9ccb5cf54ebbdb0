# SPDX-License-Identifier: Apache-2.0
"""A program in the shape of Horovod's example for PyTorch on Spark, with digits of scikit-learn in a libsvm file."""

import argparse
import sys
from pathlib import Path

import numpy as np
import pyspark.sql.types as T
import torch.nn.functional as F
from pyspark import SparkConf
from pyspark.ml.evaluation import MulticlassClassificationEvaluator
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf
from sklearn.datasets import dump_svmlight_file, load_digits
from torch import nn, optim

import hpccoll.spark.torch as hvd
from hpccoll.spark.common.backend import SparkBackend
from hpccoll.spark.common.store import Store

parser = argparse.ArgumentParser()
parser.add_argument("--master")
parser.add_argument("--num-proc", type=int)
parser.add_argument("--work-dir")
args = parser.parse_args()


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(1, 8, 3)
        self.dense = nn.Linear(288, 10)

    def forward(self, features):
        x = F.relu(self.convolution(features.float()))
        return F.log_softmax(self.dense(x.flatten(1)), dim=1)


if __name__ == "__main__":
    conf = SparkConf().setAppName("digits").set("spark.ui.enabled", "false").set("spark.sql.shuffle.partitions", "4")
    spark = SparkSession.builder.config(conf=conf.setMaster(args.master)).getOrCreate()
    store = Store.create(args.work_dir)
    digits = load_digits()
    path = str(Path(args.work_dir, "digits.libsvm"))
    dump_svmlight_file(digits.data / 16, digits.target, path, zero_based=False)
    df = spark.read.format("libsvm").option("numFeatures", "64").load(path)
    train_df, test_df = df.randomSplit([0.9, 0.1], seed=1)

    model = Net()
    optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.5)
    loss = nn.NLLLoss()
    backend = SparkBackend(
        num_proc=args.num_proc, stdout=sys.stdout, stderr=sys.stderr, prefix_output_with_timestamp=True
    )
    torch_estimator = hvd.TorchEstimator(
        backend=backend,
        store=store,
        model=model,
        optimizer=optimizer,
        loss=lambda output, target: loss(output, target.long()),
        input_shapes=[[-1, 1, 8, 8]],
        feature_cols=["features"],
        label_cols=["label"],
        batch_size=32,
        epochs=6,
        validation=0.1,
        backward_passes_per_step=2,
        verbose=1,
    )
    torch_model = torch_estimator.fit(train_df).setOutputCols(["label_prob"])

    pred_df = torch_model.transform(test_df)
    argmax = udf(lambda v: float(np.argmax(v)), returnType=T.DoubleType())
    pred_df = pred_df.withColumn("label_pred", argmax(pred_df.label_prob))
    evaluator = MulticlassClassificationEvaluator(predictionCol="label_pred", labelCol="label", metricName="accuracy")
    print("Test accuracy:", evaluator.evaluate(pred_df))
    spark.stop()
