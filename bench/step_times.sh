#!/usr/bin/env bash
# The predicted time of a step beside the measured one, over 40 small runs like those of plan's tests: the error of each,
# their mean and the worst. Takes about five minutes on a quiet machine of 2 cores; elsewhere it says little.
#
#   bench/step_times.sh [STEPS] [PATTERN]    # 30 steps each; only runs whose name matches
set -euo pipefail
cd "$(dirname "$0")/.."
nought=${NOUGHT:-build/release/bin/nought} steps=${1:-30} pattern=${2:-.}
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
mkdir "$work/files"

common='"vocab_size": 512, "hidden_size": 256, "num_attention_heads": 4, "max_position_embeddings": 512'
model() {
  case $1 in
    llama) echo "{\"model_type\": \"llama\", $common, \"intermediate_size\": 688, \"num_hidden_layers\": 4, \"num_key_value_heads\": 2}" ;;
    qwen2) echo "{\"model_type\": \"qwen2\", $common, \"intermediate_size\": 688, \"num_hidden_layers\": 4, \"num_key_value_heads\": 2, \"tie_word_embeddings\": true}" ;;
    mixtral) echo "{\"model_type\": \"mixtral\", $common, \"intermediate_size\": 256, \"num_hidden_layers\": 4, \"num_key_value_heads\": 2, \"num_local_experts\": 4, \"num_experts_per_tok\": 2}" ;;
    gpt2) echo '{"model_type": "gpt2", "vocab_size": 512, "n_embd": 256, "n_layer": 4, "n_head": 4, "n_positions": 512}' ;;
  esac
}

runs=() # name, model, ranks, overrides
add() { runs+=("$*"); }
zero=deepspeed.zero_optimization parallel=training.parallelism_config
for stage in 0 1 2 3; do
  add "llama-zero$stage" llama 2 $zero.stage=$stage
  add "gpt2-zero$stage-x4" gpt2 2 $zero.stage=$stage training.gradient_accumulation_steps=4
done
for family in llama qwen2 gpt2 mixtral; do
  add "$family-alone" $family 1
  add "$family-alone-f32" $family 1 training.bf16=false
done
for mode in selective full; do add "llama-$mode" llama 2 training.recompute='"'$mode'"'; done
add llama-long llama 1 data.seq_length=512
add llama-tiled-mlp llama 1 training.tiled_mlp=4
add llama-four-ranks llama 4 $zero.stage=2
for size in tp_size cp_size; do
  for family in llama gpt2; do add "$family-$size" $family 2 $parallel.$size=2; done
done
add mixtral-experts mixtral 2 $parallel.ep_size=2
for schedule in GPipe 1F1B Interleaved1F1B ZBH1 ZBVZeroBubble; do
  add "llama-pp2-$schedule" llama 2 $parallel.pp_size=2 training.gradient_accumulation_steps=4 $parallel.pipeline_parallel_schedule='"'$schedule'"'
done
add llama-pp4-1F1B llama 4 $parallel.pp_size=4 training.gradient_accumulation_steps=8
add llama-pp2-dp2 llama 4 $parallel.pp_size=2 training.gradient_accumulation_steps=4
add llama-power-sgd llama 2 training.ddp_comm_hook.comm_hook='"power_sgd"' training.ddp_comm_hook.start_powerSGD_iter=2
add llama-onebit llama 2 deepspeed.optimizer.type='"OneBitAdam"' deepspeed.optimizer.params.freeze_step=3
add llama-diloco llama 2 training.diloco.sync_every=20 $parallel.dp_replicate_size=2
add llama-replicas llama 2 $parallel.dp_replicate_size=2
add llama-zeropp llama 2 $zero.stage=3 $zero.zero_quantized_weights=true
add llama-states-in-files llama 2 $zero.stage=2 $zero.offload_optimizer.device='"nvme"' $zero.offload_optimizer.nvme_path='"'"$work/files"'"'
add llama-lamb llama 2 $zero.stage=1 deepspeed.optimizer.type='"Lamb"'

seconds() { awk -v n="$1" -v u="$2" 'BEGIN { print u == "s" ? n * 1000 : n }'; } # in ms
printf '%-26s %12s %12s %8s\n' run "predicted" "measured" error
for run in "${runs[@]}"; do
  read -r name family ranks overrides <<<"$run"
  [[ $name =~ $pattern ]] || continue
  cat >"$work/run.json" <<END
{"model": $(model "$family"), "data": {"files": ["$PWD/src/nought/**/*.cpp"], "tokenizer": "bytes", "seq_length": 128},
 "training": {"max_steps": $steps, "per_device_train_batch_size": 2, "bf16": true, "save_strategy": "no",
              "output_dir": "$work/out"}, "deepspeed": {"zero_optimization": {"stage": 0}}}
END
  sets=()
  for each in $overrides; do sets+=(--set "$each"); done
  if ! "$nought" train "$work/run.json" --overwrite --ranks "$ranks" "${sets[@]}" >"$work/log" 2>&1; then
    printf '%-26s %s\n' "$name" "$(grep -m1 error "$work/log" | cut -c1-120)"
    continue
  fi
  line=$(sed -n 's/^step *\([0-9.]*\) \(m\?s\).* predicted, \([0-9.]*\) \(m\?s\) measured.*/\1 \2 \3 \4/p' "$work/log")
  read -r p pu m mu <<<"$line"
  p=$(seconds "$p" "$pu") m=$(seconds "$m" "$mu")
  awk -v n="$name" -v p="$p" -v m="$m" 'BEGIN { printf "%-26s %9.1f ms %9.1f ms %7.0f%%\n", n, p, m, 100 * (p - m) / m }' | tee -a "$work/table"
done
touch "$work/table"
awk '{ e = $6 + 0; e = e < 0 ? -e : e; sum += e; if (e > worst) worst = e; n++ }
     END { if (n) printf "%d runs: mean error %.0f%%, worst %.0f%%\n", n, sum / n, worst }' "$work/table"
