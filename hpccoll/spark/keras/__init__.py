# SPDX-License-Identifier: Apache-2.0
"""An estimator of Spark ML for Keras 3, under Horovod's names.

>>> import hpccoll.spark.keras as hvd  # in place of import horovod.spark.keras as hvd
>>> estimator = hvd.KerasEstimator(num_proc=4, model=model, optimizer="adam", loss="mse", epochs=10,
...                                feature_cols=["x", "y"], label_cols=["z"])
>>> predictions = estimator.fit(df).transform(df)  # has a column z__output
"""

try:
    from hpccoll.spark.keras.estimator import KerasEstimator
    from hpccoll.spark.keras.model import KerasModel
except ImportError as error:
    needs = "hpccoll.spark.keras needs Spark and Keras 3: pip install 'hpccoll[spark,keras]'"
    raise ImportError(f"{needs} ({error})") from error

__all__ = ["KerasEstimator", "KerasModel"]
