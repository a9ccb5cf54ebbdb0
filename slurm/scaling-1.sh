#!/bin/bash
# hpccoll submit --site generic-cpu --nodes 1 --repeat 3 --time 0:30 --name scaling-1 examples/digits/train.py
# 2 tasks per node, 32 cores each. Arguments after the script's name go to the program.
#SBATCH --job-name=scaling-1
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=32
#SBATCH --exclusive
#SBATCH --time=0:30:00
# 3 repetitions, one after the other, so that they do not disturb each other.
#SBATCH --array=1-3%1
#SBATCH --output=%x-%A_%a.out
set -e
export OMP_NUM_THREADS=32
# Since Slurm 22.05 srun does not inherit --cpus-per-task.
export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK

# --mpi: the protocol by which the tasks find each other. --kill-on-bad-exit: if one task fails, the others end, too.
srun --mpi=pmix --kill-on-bad-exit=1 --distribution=block:block --cpu-bind=cores \
    python examples/digits/train.py "$@"
