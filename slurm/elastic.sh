#!/bin/bash
# hpccoll submit --site generic-cpu --nodes 2 --min-nodes 1 --spare-nodes 1 --requeue --time 0:30 examples/elastic/train.py --checkpoint train.h5
# 2 nodes with 2 ranks each, and 1 to take the place of one that fails. The job goes on with 1, if its ranks use
# hpccoll.elastic. The node of this script, the first one, must not fail. Arguments after the script's name go to the
# program.
#SBATCH --job-name=train
#SBATCH --nodes=3
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=32
#SBATCH --exclusive
#SBATCH --time=0:30:00
# A node that fails does not end the job.
#SBATCH --no-kill
#SBATCH --output=%x-%j.out
# 120 s before the time limit, Slurm sends USR1 to this script, which requeues the job. A job that is requeued
# appends to the same output, and goes on from the last commit in the file of a State(path=...).
#SBATCH --signal=B:USR1@120
#SBATCH --requeue
#SBATCH --open-mode=append
set -e
export OMP_NUM_THREADS=32

# An agent per node, started by srun, starts the ranks. A node whose rank fails gets none for a minute, so that another
# node takes its place; below the minimum the others wait for one.
hpccoll run -np 4 --min-np 2 --max-np 4 --slots-per-host 2 \
    --host-failures 1 --blacklist-cooldown-range 60 600 --elastic-timeout 180 \
    python examples/elastic/train.py --checkpoint train.h5 "$@" &
# bash runs a trap while it waits, but not while a command runs in the foreground.
trap 'scontrol requeue "$SLURM_JOB_ID"' USR1
while kill -0 $! 2>/dev/null; do wait $! && status=0 || status=$?; done

# If the job has failed, does every node still answer? If not, it goes on elsewhere.
if [ "${status:=0}" -ne 0 ]; then
    srun --overlap --ntasks=3 --ntasks-per-node=1 true || scontrol requeue "$SLURM_JOB_ID"
fi
exit "$status"
