#!/bin/bash
# hpccoll submit --site summit --nodes 64 --account ABC123 --requeue --repeat 3 --time 2:00 examples/digits/train.py --checkpoint train.h5
# summit: the machine is gone: nothing of this profile was run there
# One resource set per GPU: one task, 7 cores, one GPU. Submit with: bsub FILE
#BSUB -J train[1-3]%1
#BSUB -nnodes 64
#BSUB -W 2:00
#BSUB -P ABC123
#BSUB -alloc_flags "smt4"
#BSUB -o train-%J-%I.out
# 2 minutes before the time limit, LSF sends USR1 to the job; hpccoll.preemption() stops all ranks after the same step.
# Exit status 99 puts the job back into the queue (-Q), and so does the loss of a node (-r).
#BSUB -wa USR1
#BSUB -wt 2
#BSUB -Q 99
#BSUB -r
trap "warned=yes" USR1 USR2
set -e
module load gcc spectrum-mpi
export PAMI_IBV_ADAPTER_AFFINITY=1
export PAMI_IBV_DEVICE_NAME=mlx5_0:1
export PAMI_IBV_DEVICE_NAME_1=mlx5_3:1
export OMP_NUM_THREADS=7

# --exit_on_error: if one task fails, the others end, too. --latency_priority: sets do not span sockets.
jsrun --nrs 384 --rs_per_host 6 --tasks_per_rs 1 --cpu_per_rs 7 --gpu_per_rs 1 \
    --bind packed:7 --launch_distribution packed --latency_priority gpu-cpu --exit_on_error 1 \
    python examples/digits/train.py --checkpoint train.h5 "$@"

# bash runs the trap when the ranks have ended. They ended with status 0 (set -e), so they have saved: run again.
[ -z "$warned" ] || exit 99
