# SPDX-License-Identifier: Apache-2.0
"""What programs import from horovod.spark.common: `backend.SparkBackend` and the stores of `store`."""
