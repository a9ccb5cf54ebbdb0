#!/bin/bash
# hpccoll submit --site generic-cpu --nodes 2 --launcher mpirun --time 0:30 examples/digits/train.py
# 2 tasks per node, 32 cores each. Arguments after the script's name go to the program.
#SBATCH --job-name=train
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=32
#SBATCH --exclusive
#SBATCH --time=0:30:00
#SBATCH --output=%x-%j.out
set -e
export OMP_NUM_THREADS=32

# mpirun takes the nodes of the allocation from Slurm.
hpccoll run -np 4 python examples/digits/train.py "$@"
