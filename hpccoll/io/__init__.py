# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of distributed arrays in HDF5, and restart on another number of ranks.

Where h5py was built with MPI, and the World is of MPI, all ranks write one file (MPI-IO). Elsewhere a checkpoint is a
file that shows whole arrays (virtual datasets) and one file per node with the data of its ranks. `versions.py` has the
names of the files and the order of their creation and removal: a job that is killed at any time leaves the previous
checkpoint or the new one, complete. All files end with checksums, which every load compares (docs/decisions/0134).
h5py must be installed. The ranks agree on each step, so files are not locked, which not every parallel file system
supports.
"""

from hpccoll.io.agreed import CheckpointError
from hpccoll.io.layout import Part
from hpccoll.io.reading import attributes, load
from hpccoll.io.writing import save

__all__ = ["CheckpointError", "Part", "attributes", "load", "save"]
