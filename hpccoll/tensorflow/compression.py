# SPDX-License-Identifier: Apache-2.0
"""horovod.tensorflow.compression under its name: what tensors travel as. Derive compressors from Compressor."""

from hpccoll.frontend.compression import NoneCompressor
from hpccoll.tensorflow.operations import Compression

__all__ = ["BF16Compressor", "Compression", "Compressor", "FP16Compressor", "NoneCompressor"]

Compressor = NoneCompressor
FP16Compressor = Compression.fp16
BF16Compressor = Compression.bf16
