#!/bin/bash
# A run that outlives its allocations: sbatch examples/slurm.sh RUN.json OUTPUT_DIR
#
# Slurm sends SIGUSR1 two minutes before the time is over: the run finishes its step, saves, and ends with 138, and this
# script queues the job again. A job that is preempted gets SIGTERM, does the same, and Slurm queues it by --requeue. The
# next start goes on from the last checkpoint. Two minutes must be more than a step and a save take: `save_seconds` in
# metrics.jsonl says what a save takes.
#SBATCH --job-name=nought
#SBATCH --nodes=2 --ntasks-per-node=2 --cpus-per-task=16
#SBATCH --time=24:00:00 --signal=USR1@120
#SBATCH --requeue --open-mode=append
set -uo pipefail
run=${1:?usage: sbatch slurm.sh RUN.json OUTPUT_DIR} output=${2:?usage: sbatch slurm.sh RUN.json OUTPUT_DIR}
export OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK:-1}

resume=()
compgen -G "$output/checkpoint-*/manifest.json" >/dev/null && resume=(--resume)
code=0
srun --mpi=pmix nought train "$run" --set training.output_dir="$output" "${resume[@]}" || code=$?
case $code in
  138) scontrol requeue "$SLURM_JOB_ID" ;; # the time was over, and all is saved
  143) echo "slurm.sh: preempted; Slurm queues the job again" ;;
esac
exit "$code"
