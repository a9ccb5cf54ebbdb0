#!/bin/bash
# hpccoll submit --site generic-cpu --nodes 2 --launcher mpirun --requeue --time 0:30 examples/digits/train.py --checkpoint train.h5
# 2 tasks per node, 32 cores each. Arguments after the script's name go to the program.
#SBATCH --job-name=train
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=32
#SBATCH --exclusive
#SBATCH --time=0:30:00
#SBATCH --output=%x-%j.out
# 120 s before the time limit, Slurm sends USR1 to this script; hpccoll.preemption() stops all ranks after the
# same step. A job that is requeued, by itself or because a node failed, appends to the same output.
#SBATCH --signal=B:USR1@120
#SBATCH --requeue
#SBATCH --open-mode=append
set -e
export OMP_NUM_THREADS=32

# bash runs a trap while it waits, but not while a command runs in the foreground.
hpccoll run -np 4 python examples/digits/train.py --checkpoint train.h5 "$@" &
trap "kill -USR1 $!" USR1
while kill -0 $! 2>/dev/null; do wait $! && status=0 || status=$?; done

# If a rank failed, does every node still answer? If not, the job goes on elsewhere.
if [ "${status:=0}" -ne 0 ]; then
    srun --overlap --ntasks=2 --ntasks-per-node=1 true || scontrol requeue "$SLURM_JOB_ID"
fi
exit "$status"
