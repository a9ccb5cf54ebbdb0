# SPDX-License-Identifier: Apache-2.0
"""An estimator of Spark ML for PyTorch, under Horovod's names.

>>> import hpccoll.spark.torch as hvd  # in place of import horovod.spark.torch as hvd
>>> estimator = hvd.TorchEstimator(num_proc=4, model=model, optimizer=optimizer, loss=torch.nn.functional.mse_loss,
...                                feature_cols=["x", "y"], label_cols=["z"], epochs=10)
>>> predictions = estimator.fit(df).transform(df)  # has a column z__output
"""

try:
    from hpccoll.spark.torch.estimator import TorchEstimator
    from hpccoll.spark.torch.model import TorchModel
except ImportError as error:
    needs = "hpccoll.spark.torch needs Spark and PyTorch: pip install 'hpccoll[spark,torch]'"
    raise ImportError(f"{needs} ({error})") from error

__all__ = ["TorchEstimator", "TorchModel"]
