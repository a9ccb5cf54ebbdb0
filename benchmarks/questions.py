# SPDX-License-Identifier: Apache-2.0
"""The programs that run.py starts, and the libraries that have an answer."""

QUESTIONS = {  # program: the libraries that it can measure
    "small": ("memcpy", "hpccoll", "mpi", "gloo", "horovod"),
    "cg": ("hpccoll", "mpi"),
    "allreduce": ("memcpy", "hpccoll", "mpi", "gloo", "horovod"),
    "operations": ("hpccoll",),
    "many_tensors": ("memcpy", "hpccoll", "mpi", "gloo", "horovod"),
    "resnet50": ("memcpy", "hpccoll", "mpi", "gloo", "horovod"),
    "torch_optimizer": ("hpccoll", "gloo", "horovod"),
    "torch_ddp": ("hpccoll", "gloo"),
    "torch_overlap": ("hpccoll", "gloo", "horovod"),
    "idle": ("hpccoll",),
}
