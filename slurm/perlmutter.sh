#!/bin/bash
# hpccoll submit --site perlmutter --nodes 64 --account m1234 --time 2:00 examples/digits/train.py
# perlmutter: nothing of this profile was run there
# 4 tasks per node, 16 cores and a GPU each. Arguments after the script's name go to the program.
# Each task sees all GPUs of its node; the program takes that of its local rank, as torch.cuda.set_device(hpccoll.local_rank()).
#SBATCH --job-name=train
#SBATCH --nodes=64
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=32
#SBATCH --gpus-per-node=4
#SBATCH --gpu-bind=none
#SBATCH --exclusive
#SBATCH --time=2:00:00
#SBATCH --account=m1234
#SBATCH --qos=regular
#SBATCH --constraint=gpu
#SBATCH --output=%x-%j.out
set -e
module load PrgEnv-gnu cray-mpich
export MPICH_OFI_NIC_POLICY=GPU
export OMP_NUM_THREADS=16
# Since Slurm 22.05 srun does not inherit --cpus-per-task.
export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK

# --kill-on-bad-exit: if one task fails, the others end, too.
srun --kill-on-bad-exit=1 --cpu-bind=map_ldom:3,2,1,0 \
    python examples/digits/train.py "$@"
