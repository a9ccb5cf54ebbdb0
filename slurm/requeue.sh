#!/bin/bash
# hpccoll submit --site generic-cpu --nodes 2 --requeue --time 0:30 examples/digits/train.py --checkpoint train.h5
# 2 tasks per node, 32 cores each. Arguments after the script's name go to the program.
#SBATCH --job-name=train
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=32
#SBATCH --exclusive
#SBATCH --time=0:30:00
#SBATCH --output=%x-%j.out
# 120 s before the time limit, Slurm sends USR1 to the tasks; hpccoll.preemption() stops all ranks after the
# same step. A job that is requeued, by itself or because a node failed, appends to the same output.
#SBATCH --signal=USR1@120
#SBATCH --requeue
#SBATCH --open-mode=append
set -e
export OMP_NUM_THREADS=32
# Since Slurm 22.05 srun does not inherit --cpus-per-task.
export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK

# --mpi: the protocol by which the tasks find each other. --kill-on-bad-exit: if one task fails, the others end, too.
srun --mpi=pmix --kill-on-bad-exit=1 --distribution=block:block --cpu-bind=cores \
    python examples/digits/train.py --checkpoint train.h5 "$@" || status=$?

# If a rank failed, does every node still answer? If not, the job goes on elsewhere.
if [ "${status:=0}" -ne 0 ]; then
    srun --overlap --ntasks=2 --ntasks-per-node=1 true || scontrol requeue "$SLURM_JOB_ID"
fi
exit "$status"
