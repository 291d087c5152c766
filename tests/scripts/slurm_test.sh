#!/usr/bin/env bash
# examples/slurm.sh goes on from checkpoints and queues itself again when its time is over: slurm_test.sh SLURM
set -euo pipefail
slurm=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
printf '#!/bin/sh\necho "srun $*" >>calls; exit "$(cat code)"\n' >srun
printf '#!/bin/sh\necho "scontrol $*" >>calls\n' >scontrol
chmod +x srun scontrol
export PATH=$work:$PATH SLURM_JOB_ID=7
fail() {
  echo "slurm_test: $*: $(cat calls)" >&2
  exit 1
}
start() { # CODE: of srun
  echo "$1" >code
  : >calls
  code=0
  "$slurm" run.json out >log 2>&1 || code=$?
  [[ $code == "$1" ]] || fail "exit code $code, not $1"
}
start 138
grep -qx 'srun --mpi=pmix nought train run.json --set training.output_dir=out' calls || fail "not started anew"
grep -qx 'scontrol requeue 7' calls || fail "not queued again"
mkdir -p out/checkpoint-5
start 1
grep -q -- --resume calls && fail "resumes an incomplete checkpoint"
grep -q scontrol calls && fail "queued again after an error"
touch out/checkpoint-5/manifest.json
start 0
grep -qx 'srun --mpi=pmix nought train run.json --set training.output_dir=out --resume' calls || fail "does not resume"
if "$slurm" run.json >/dev/null 2>&1; then fail "no output folder is no error"; fi
