#!/bin/bash
# hpccoll submit --site frontier --nodes 64 --account ABC123 --time 2:00 examples/digits/train.py
# frontier: nothing of this profile was run there
# frontier: hpccoll does not support AMD GPUs: an array in their memory is an UnsupportedError, so copy it first (x.cpu())
# 8 tasks per node, 7 cores and a GPU each. Arguments after the script's name go to the program.
# The program sees its own GPU only, as device 0.
#SBATCH --job-name=train
#SBATCH --nodes=64
#SBATCH --ntasks-per-node=8
#SBATCH --cpus-per-task=7
#SBATCH --gpus-per-task=1
#SBATCH --exclusive
#SBATCH --time=2:00:00
#SBATCH --account=ABC123
#SBATCH --output=%x-%j.out
set -e
module load PrgEnv-gnu cray-mpich craype-accel-amd-gfx90a rocm
export OMP_NUM_THREADS=7
# Since Slurm 22.05 srun does not inherit --cpus-per-task.
export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK

# --kill-on-bad-exit: if one task fails, the others end, too.
srun --kill-on-bad-exit=1 --gpus-per-task=1 --gpu-bind=closest --cpu-bind=cores \
    python examples/digits/train.py "$@"
