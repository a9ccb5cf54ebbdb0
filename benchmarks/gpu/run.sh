#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Everything that a machine with a GPU is to show, in the order in which a failure tells most: run.sh [FOLDER]
#
#     found      what driver, NCCL and devices there are
#     contract   what is counted on of the driver and of NCCL
#     suite      every operation and type through the data plane, staged and over NCCL, checked against a reference
#     arrays     CuPy and PyTorch through whole jobs (where they are installed)
#     rates      packing, staging beside raw copies, the overhead of one rank
#
# Builds with cc, in FOLDER (default: gpu-results), where a log and the figures of each step stay. Goes on after a failure;
# the last lines say what passed. HPCCOLL_CUDA_LIBRARY and HPCCOLL_NCCL_LIBRARY may name other libraries (the tests' fakes).
# QUICK=1: fewer cases and sizes. Stops nothing and sets nothing outside; a shared GPU is not disturbed for long.
set -u
cd "$(dirname "$0")/../.."
folder=${1:-gpu-results}
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
python=${PYTHON:-$([ -x .venv/bin/python ] && echo .venv/bin/python || echo python3)}
export HPCCOLL_CUDA_LIBRARY=${HPCCOLL_CUDA_LIBRARY:-libcuda.so.1}
if [ -z "${HPCCOLL_NCCL_LIBRARY:-}" ]; then
    HPCCOLL_NCCL_LIBRARY=$("$python" -c 'import hpccoll.cuda as c; print(next(map(str, c.packages()), "libnccl.so.2"))')
    export HPCCOLL_NCCL_LIBRARY
fi
# Several ranks on one GPU, for correctness alone: see docs/gpu.md.
export NCCL_MULTI_RANK_GPU_ENABLE=1 NCCL_NVLS_ENABLE=0 NCCL_MNNVL_ENABLE=0 NCCL_MAX_CTAS=1 NCCL_RAS_ENABLE=0
export NCCL_IB_DISABLE=${NCCL_IB_DISABLE:-1} NCCL_DEBUG=${NCCL_DEBUG:-WARN}
cases=${QUICK:+15}
cases=${cases:-150}
mebibytes=${QUICK:+1}
mebibytes=${mebibytes:-1024}
repeats=${QUICK:+3}
repeats=${repeats:-20}
failed=() passed=()

step() { # NAME SECONDS COMMAND...: its output to NAME.log
    local name=$1 seconds=$2 status
    shift 2
    printf '%-28s ' "$name"
    timeout "$seconds" "$@" >"$folder/$name.log" 2>&1
    status=$?
    if [ $status -eq 0 ]; then
        passed+=("$name")
        echo "passed"
    else
        failed+=("$name")
        echo "FAILED ($status): $(tail -n 1 "$folder/$name.log")"
    fi
}

step found-device 60 nvidia-smi
step found-libraries 120 "$python" -m hpccoll info

flags=(-std=c11 -O2 -g -D_GNU_SOURCE= -pthread -Iext -Iext/core -Iext/cuda -Iext/transport)
sources=(ext/cuda/*.c ext/core/status.c)
for source in ext/transport/*.c; do
    [ "$source" = ext/transport/mpi.c ] || sources+=("$source")
done
step build-library 300 cc "${flags[@]}" -shared -fPIC "${sources[@]}" -ldl -lm -o "$folder/libplane.so"
program() { # NAME SOURCE FLAG...
    step "build-$1" 120 cc "${flags[@]}" "${@:3}" "$2" -L"$folder" -lplane -Wl,-rpath,"$folder" -ldl -lm -o "$folder/$1"
}
program contract-driver tests/cuda/driver_contract.c
program contract-nccl tests/cuda/nccl_contract.c
program suite tests/transport/hierarchy_driver.c -DON_DEVICE
program rates benchmarks/gpu/rates.c

step contract-driver 60 "$folder/contract-driver" "$HPCCOLL_CUDA_LIBRARY" nvidia
step contract-nccl-1 60 "$folder/contract-nccl" "$HPCCOLL_CUDA_LIBRARY" "$HPCCOLL_NCCL_LIBRARY" 1 all

for layout in 0 0,0 0,0,1,1; do # ranks are threads
    step "suite-staged-$layout" 300 env TEST_DEVICE_MODE=staged "$folder/suite" "$layout" 1 "$cases"
    step "suite-staged-chunks-$layout" 300 env TEST_DEVICE_MODE=staged "$folder/suite" "$layout" 2 15 auto 3000 1
done
step suite-nccl-0 300 env TEST_DEVICE_MODE=nccl "$folder/suite" 0 1 "$cases"
for layout in 0,0 0,0,1,1; do # several ranks on one GPU: NCCL 2.30 or later, or as many GPUs
    step "suite-nccl-$layout" 300 env TEST_DEVICE_MODE=nccl "$folder/suite" "$layout" 1 "$cases"
    step "suite-nccl-chunks-$layout" 300 env TEST_DEVICE_MODE=nccl "$folder/suite" "$layout" 2 15 auto 3000 1
done

libraries='import cupy; assert cupy.cuda.is_available()' # whichever sees the GPU
if "$python" -c "$libraries" 2>/dev/null || "$python" -c "${libraries//cupy/torch}" 2>/dev/null; then
    step arrays 900 "$python" benchmarks/gpu/arrays.py
else
    echo "arrays: neither CuPy nor PyTorch sees a GPU here"
fi

step rates-staged 300 "$folder/rates" staged "$repeats" "$mebibytes"
step rates-nccl 300 "$folder/rates" nccl_flat "$repeats" "$mebibytes"
[ -n "${QUICK:-}" ] || step rates-pack 600 "$python" benchmarks/pack.py

echo
echo "${#passed[@]} passed, ${#failed[@]} failed${failed:+: ${failed[*]}}; logs and figures in $folder"
[ ${#failed[@]} -eq 0 ]
