#!/bin/bash
# hpccoll submit --site generic-lsf --nodes 2 --time 0:30 examples/digits/train.py
# 2 tasks per node, 32 cores each. Submit with: bsub < FILE
#BSUB -J train
#BSUB -n 128
#BSUB -R "span[ptile=64]"
#BSUB -x
#BSUB -W 0:30
#BSUB -o train-%J.out
# At the time limit, LSF sends USR2 to the job and gives it ten minutes; the ranks stop by hpccoll.preemption().
trap : USR2
set -e
export OMP_NUM_THREADS=32

# All slots of the nodes are ours (-n, ptile); mpirun starts 2 tasks on each, 32 cores apart.
# -x: variables that the ranks on other nodes need.
mpirun -np 4 --map-by ppr:2:node:PE=32 --bind-to core \
    -x PATH -x OMP_NUM_THREADS \
    python examples/digits/train.py "$@"
