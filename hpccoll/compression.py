# SPDX-License-Identifier: Apache-2.0
"""Types that values have between nodes: FP16 and BF16 halve the bytes of float32 arrays, and quarter those of float64.

    >>> total = hpccoll.allreduce(np.ones(4, np.float32), compression=hpccoll.compression.FP16)

A node's sum is formed in the arrays' own type and narrowed; the nodes' sums are added up in float32 and rounded
once per stage. Inside a node nothing is narrowed.
"""

import dataclasses

from hpccoll import _core

__all__ = ["BF16", "FP16", "Compression"]


@dataclasses.dataclass(frozen=True, slots=True)
class Compression:
    """A type that values have between nodes: its name and its code in the tables of dtypes."""

    name: str
    dtype_code: int

    def __str__(self) -> str:
        return self.name


FP16 = Compression("float16", _core.DTYPES.index("float16"))
BF16 = Compression("bfloat16", _core.DTYPES.index("bfloat16"))
