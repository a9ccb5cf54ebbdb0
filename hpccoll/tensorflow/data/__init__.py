# SPDX-License-Identifier: Apache-2.0
"""The tf.data service, as Horovod starts it: `compute_service` for training, `compute_worker` is the command."""
