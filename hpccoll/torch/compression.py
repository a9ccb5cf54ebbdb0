# SPDX-License-Identifier: Apache-2.0
"""horovod.torch.compression under its name: compression of tensors. Derive your compressors from Compressor."""

from hpccoll.frontend.compression import NoneCompressor
from hpccoll.torch.horovod import Compression

__all__ = ["BF16Compressor", "Compression", "Compressor", "FP16Compressor", "NoneCompressor"]

Compressor = NoneCompressor
FP16Compressor = Compression.fp16
BF16Compressor = Compression.bf16
