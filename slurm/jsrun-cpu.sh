#!/bin/bash
# hpccoll submit --site summit --nodes 2 --no-gpus --account ABC123 --time 0:30 examples/digits/train.py
# summit: the machine is gone: nothing of this profile was run there
# 2 resource sets per node: one task, 21 cores. Submit with: bsub FILE
#BSUB -J train
#BSUB -nnodes 2
#BSUB -W 0:30
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
export OMP_NUM_THREADS=21

# --exit_on_error: if one task fails, the others end, too. --latency_priority: sets do not span sockets.
jsrun --nrs 4 --rs_per_host 2 --tasks_per_rs 1 --cpu_per_rs 21 --gpu_per_rs 0 \
    --bind packed:21 --launch_distribution packed --latency_priority cpu-cpu --exit_on_error 1 \
    python examples/digits/train.py "$@"
