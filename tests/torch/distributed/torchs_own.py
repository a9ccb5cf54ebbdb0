# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own multi-process tests of torch.distributed, run against backend "hpccoll".

    torchrun --nproc-per-node 3 tests/torch/distributed/torchs_own.py [NAME...]

PyTorch starts new processes for each test. Here the same processes run all tests, each with a new process group, which
takes only minutes. Each test's outcome is a line; the last line counts them. Status 1: a test failed.
"""

import os
import shutil
import sys
import tempfile
import traceback
import unittest
from datetime import timedelta

os.environ["BACKEND"] = "hpccoll"
os.environ["TEMP_DIR"] = os.path.join(tempfile.gettempdir(), f"torchs_own-{os.environ['MASTER_PORT']}")
os.environ["HPCCOLL_VERBOSE"] = "0"

import torch
import torch.distributed as dist
from torch.testing._internal import common_distributed
from torch.testing._internal.distributed import distributed_test

from hpccoll.torch.distributed.backend import NAME

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
TIMEOUT = 30
"""Seconds that a collective of a test may take."""

EXCLUDED = {
    # name, or its beginning: the reason why it is left out
    "test_monitored_barrier_gloo_rank_0_timeout": "a limit of no time has other words",
    "test_SyncBatchNorm_process_group": "needs torchvision",
    "test_all_to_all_cuda": "needs a GPU",
    "test_all_to_all_full_group_cuda": "needs a GPU",
    "test_all_to_all_group_cuda": "needs a GPU",
    "test_batch_isend_irecv_mixed_backend_err": "makes a group of nccl",
    "test_batch_isend_irecv_op_err": "needs a GPU",
}
if SIZE < 4:
    EXCLUDED["test_new_subgroups_with_group_param"] = "needs four ranks and does not ask for them"
AS_GLOO = ("test_accumulate_gradients_no_sync", "test_monitored_barrier", "test_sparse_all_reduce_sum")
"""Beginnings of the names of cases that have tensors in host memory only for backends of certain names."""
STORE = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)


class Cases(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
    """PyTorch's cases, which run in the existing processes."""

    def setUp(self) -> None:
        pass

    def tearDown(self) -> None:
        pass

    def _barrier(self, *_: object, **__: object) -> None:
        """Replace PyTorch's barrier of files, which needs new processes for each test."""
        self.barriers = getattr(self, "barriers", 0) + 1
        key = f"barrier/{self._testMethodName}/{self.barriers}"
        if STORE.add(key, 1) == SIZE:
            STORE.set(f"{key}/all", "")
        STORE.wait([f"{key}/all"], timedelta(seconds=2 * TIMEOUT))


def run(name: str) -> tuple[str, str]:
    """Run one test on this rank; return ok, skip or FAIL, and the reason."""
    method = getattr(Cases, name)
    case = Cases(name)
    case.rank, case.file_name = RANK, os.path.join(os.environ["TEMP_DIR"], f"{name}.{RANK}")
    torch.manual_seed(1234)
    distributed_test.BACKEND = "gloo" if name.startswith(AS_GLOO) else NAME
    try:
        dist.init_process_group(
            NAME, store=dist.PrefixStore(name, STORE), rank=RANK, world_size=SIZE,
            timeout=timedelta(seconds=TIMEOUT),
        )  # fmt: skip
        method(case)
        case._barrier()
    except unittest.SkipTest as skip:
        return "skip", str(skip)
    except SystemExit as end:
        skips = {one.exit_code: one.message for one in common_distributed.TEST_SKIPS.values()}
        return ("skip", skips[end.code]) if end.code in skips else ("FAIL", f"exit status {end.code}")
    except Exception:  # noqa: BLE001 - a failure of any kind is the outcome
        return "FAIL", traceback.format_exc(limit=-4)
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
    return "ok", ""


def main() -> int:
    names = sys.argv[1:] or sorted(n for n in dir(Cases) if n.startswith("test_"))
    for feature in ("ddp", "subgroup"):
        common_distributed.DistTestCases.backend_feature[feature].add(NAME)
    for folder in ("barrier", "test_dir"):
        os.makedirs(os.path.join(os.environ["TEMP_DIR"], folder), exist_ok=True)
    counts = {"ok": 0, "skip": 0, "excluded": 0, "FAIL": 0}
    for name in names:
        reason = next((why for prefix, why in EXCLUDED.items() if name.startswith(prefix)), "")
        outcome, why = ("excluded", reason) if reason else run(name)
        STORE.set(f"outcome/{name}/{RANK}", f"{outcome} {why}")
        every = [STORE.get(f"outcome/{name}/{r}").decode().partition(" ") for r in range(SIZE)]
        worst = next((one for one in every if one[0] == "FAIL"), every[0])
        counts[worst[0]] += 1
        if RANK == 0:
            print(
                f"{worst[0]:>8} {name} {worst[2] if worst[0] == 'FAIL' else worst[2].splitlines()[:1]}",
                flush=True,
            )
    if RANK == 0:
        print(", ".join(f"{number} {outcome}" for outcome, number in counts.items()), flush=True)
        shutil.rmtree(os.environ["TEMP_DIR"])
        STORE.set("end", "")
    STORE.wait(["end"])  # torchrun ends all ranks when one ends with a failure
    return int(counts["FAIL"] > 0)


if __name__ == "__main__":
    sys.exit(main())
