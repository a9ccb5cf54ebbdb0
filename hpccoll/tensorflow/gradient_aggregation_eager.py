# SPDX-License-Identifier: Apache-2.0
"""horovod.tensorflow.gradient_aggregation_eager is not there: hpccoll.not_there says what to use instead."""

from hpccoll.not_there import missing

raise missing(__name__)
