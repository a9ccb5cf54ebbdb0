# SPDX-License-Identifier: Apache-2.0
"""An estimator of Spark ML for PyTorch Lightning, under Horovod's names.

>>> import hpccoll.spark.lightning as hvd  # in place of import horovod.spark.lightning as hvd
>>> estimator = hvd.TorchEstimator(num_proc=4, model=module, feature_cols=["x", "y"], label_cols=["z"], epochs=10)
>>> predictions = estimator.fit(df).transform(df)  # has a column z__output
"""

try:
    from hpccoll.spark.lightning.estimator import TorchEstimator
    from hpccoll.spark.torch.model import TorchModel
except ImportError as error:
    needs = "hpccoll.spark.lightning needs Spark, PyTorch and Lightning: pip install 'hpccoll[spark,torch]' lightning"
    raise ImportError(f"{needs} ({error})") from error

__all__ = ["TorchEstimator", "TorchModel"]
