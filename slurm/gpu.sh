#!/bin/bash
# hpccoll submit --site generic-gpu --nodes 2 --time 0:30 examples/digits/train.py
# 4 tasks per node, 16 cores and a GPU each. Arguments after the script's name go to the program.
# Each task sees all GPUs of its node; the program takes that of its local rank, as torch.cuda.set_device(hpccoll.local_rank()).
#SBATCH --job-name=train
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=16
#SBATCH --gpus-per-node=4
#SBATCH --exclusive
#SBATCH --time=0:30:00
#SBATCH --output=%x-%j.out
set -e
export OMP_NUM_THREADS=16
# Since Slurm 22.05 srun does not inherit --cpus-per-task.
export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK

# --mpi: the protocol by which the tasks find each other. --kill-on-bad-exit: if one task fails, the others end, too.
srun --mpi=pmix --kill-on-bad-exit=1 --distribution=block:block --cpu-bind=cores \
    python examples/digits/train.py "$@"
