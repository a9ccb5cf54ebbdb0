# SPDX-License-Identifier: Apache-2.0
"""Compression.none, .fp16 and .bf16 for tensors of any backend of Keras.

The library converts float32 and float64 on its way between nodes; a compressor that a user writes converts with
operations of Keras, before and after.
"""

from typing import Any, cast

import keras

from hpccoll.frontend.adapter import TensorAdapter
from hpccoll.frontend.compression import Compressor, Compressors, NoneCompressor

__all__ = ["Compression", "Compressor", "NoneCompressor"]


class _Casts:
    """The two methods of an adapter that compressors need."""

    def dtype(self, tensor: Any) -> str:
        return str(keras.backend.standardize_dtype(tensor.dtype))

    def cast(self, tensor: Any, dtype: str) -> Any:
        return keras.ops.cast(tensor, dtype)


Compression = Compressors(cast("TensorAdapter[Any]", _Casts()))
