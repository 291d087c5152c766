#!/usr/bin/env bash
# Makes the pictures of the README: scripts/pictures.sh [FOLDER]   (default: docs)
#
#   pipeline.svg       a step of a pipeline on two ranks, as it was planned and as it was
#   memory_stages.svg  the peak of a rank by ZeRO stage, as nought plan predicts it
#   losses.svg         four runs at ZeRO stages 0 to 3, whose losses lie on each other
#
# It trains on two ranks for a minute or two; NOUGHT is the program, by default build/release/bin/nought.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
out=${1:-docs}
nought=${NOUGHT:-build/release/bin/nought}
work=build/pictures

fail() {
  echo "pictures: error: $*" >&2
  exit 1
}
[[ -x $nought ]] || fail "there is no $nought: scripts/build.sh"
[[ -d $out ]] || fail "there is no folder $out"
rm -rf "$work"
mkdir -p "$work"
export OMP_NUM_THREADS=1

run() { "$nought" "$@" >"$work/log" 2>&1 || fail "nought $1: $(tail -3 "$work/log")"; }

pipeline=(--set training.parallelism_config.pp_size=2 --set training.gradient_accumulation_steps=8)
run train examples/quickstart.json --ranks 2 --trace "$work/trace.json" --set training.max_steps=4 \
  --set training.output_dir="$work/pp" --set training.save_steps=0 "${pipeline[@]}"
run plan examples/quickstart.json --ranks 2 --trace "$work/trace.json" --svg "$out/pipeline.svg" "${pipeline[@]}"

run plan examples/quickstart.json --ranks 4 --stage all --svg "$out/memory_stages.svg"

small=(model.num_hidden_layers=2 data.seq_length=64 'data.files=["src/nought/**/*.h"]' training.max_steps=60 training.save_steps=0
  training.logging_steps=1 training.bf16=false deepspeed.bf16.enabled=false)
for stage in 0 1 2 3; do
  run train examples/quickstart.json --ranks 2 "${small[@]/#/--set=}" --set deepspeed.zero_optimization.stage=$stage \
    --set training.output_dir="$work/stage $stage"
done
run report "$work"/stage\ * -o "$work/report.html" --svg "$work/charts"
cp "$work/charts/loss.svg" "$out/losses.svg"

echo "pictures: $out/pipeline.svg, $out/memory_stages.svg, $out/losses.svg"
