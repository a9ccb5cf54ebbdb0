#!/bin/bash
# hpccoll submit --site generic-lsf --nodes 2 --requeue --time 0:30 examples/digits/train.py --checkpoint train.h5
# 2 tasks per node, 32 cores each. Submit with: bsub < FILE
#BSUB -J train
#BSUB -n 128
#BSUB -R "span[ptile=64]"
#BSUB -x
#BSUB -W 0:30
#BSUB -o train-%J.out
# 2 minutes before the time limit, LSF sends USR1 to the job; hpccoll.preemption() stops all ranks after the same step.
# Exit status 99 puts the job back into the queue (-Q), and so does the loss of a node (-r).
#BSUB -wa USR1
#BSUB -wt 2
#BSUB -Q 99
#BSUB -r
trap "warned=yes" USR1 USR2
set -e
export OMP_NUM_THREADS=32

# All slots of the nodes are ours (-n, ptile); mpirun starts 2 tasks on each, 32 cores apart.
# -x: variables that the ranks on other nodes need.
mpirun -np 4 --map-by ppr:2:node:PE=32 --bind-to core \
    -x PATH -x OMP_NUM_THREADS \
    python examples/digits/train.py --checkpoint train.h5 "$@"

# bash runs the trap when the ranks have ended. They ended with status 0 (set -e), so they have saved: run again.
[ -z "$warned" ] || exit 99
