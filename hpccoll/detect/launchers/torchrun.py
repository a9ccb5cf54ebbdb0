# SPDX-License-Identifier: Apache-2.0
"""torchrun: starts processes for torch.distributed; MPI knows nothing of them.

Source: "torchrun (Elastic Launch)", section Environment Variables, of PyTorch's documentation; recorded.
"""

from collections.abc import Mapping

from hpccoll.detect.job_place import Place, read

ORDER = 10


def place(env: Mapping[str, str]) -> Place | None:
    """Read the place of this process under torchrun; other programs also set RANK and WORLD_SIZE."""
    if "TORCHELASTIC_RUN_ID" not in env:
        return None
    return read(
        "torchrun", env, rank="RANK", size="WORLD_SIZE", local_rank="LOCAL_RANK", local_size="LOCAL_WORLD_SIZE",
        node="GROUP_RANK", job=("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT"), mpi=False,
    )  # fmt: skip
