#!/bin/bash
# hpccoll submit --site summit --nodes 64 --account ABC123 --time 2:00 examples/digits/train.py
# summit: the machine is gone: nothing of this profile was run there
# One resource set per GPU: one task, 7 cores, one GPU. Submit with: bsub FILE
#BSUB -J train
#BSUB -nnodes 64
#BSUB -W 2:00
#BSUB -P ABC123
#BSUB -alloc_flags "smt4"
#BSUB -o train-%J.out
# At the time limit, LSF sends USR2 to the job and gives it ten minutes; the ranks stop by hpccoll.preemption().
trap : USR2
set -e
module load gcc spectrum-mpi
export PAMI_IBV_ADAPTER_AFFINITY=1
export PAMI_IBV_DEVICE_NAME=mlx5_0:1
export PAMI_IBV_DEVICE_NAME_1=mlx5_3:1
export OMP_NUM_THREADS=7

# --exit_on_error: if one task fails, the others end, too. --latency_priority: sets do not span sockets.
jsrun --nrs 384 --rs_per_host 6 --tasks_per_rs 1 --cpu_per_rs 7 --gpu_per_rs 1 \
    --bind packed:7 --launch_distribution packed --latency_priority gpu-cpu --exit_on_error 1 \
    python examples/digits/train.py "$@"
