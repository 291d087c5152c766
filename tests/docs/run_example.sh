#!/usr/bin/env bash
# Starts a run of examples/ for two steps: run_example.sh NOUGHT ROOT NAME.json
#
# Models of the hub are a tiny one here, which lies where `hf download` would have put it.
set -euo pipefail
nought=$(realpath "$1")
cd "$2"
example=examples/$3
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

settings=(training.max_steps=2 training.logging_steps=1 training.save_steps=0 training.warmup_steps=1
  training.gradient_accumulation_steps=1 data.seq_length=32 data.validation_fraction=0
  training.output_dir="$folder/out")
grep -q chats.jsonl "$example" && settings+=("data.files=[\"$PWD/examples/chats.jsonl\"]")
if hub=$(grep -oE '"model": "[^"/]+/[^"/]+"' "$example"); then
  name=$(cut -d'"' -f4 <<<"$hub")
  export HF_HUB_CACHE=$folder/hub
  model=$HF_HUB_CACHE/models--${name/\//--}
  mkdir -p "$model/refs" "$model/snapshots"
  echo main >"$model/refs/main"
  "$nought" convert tests/golden/open/llama "$model/snapshots/main"
  if [[ $name == *-Instruct ]]; then # has markers and a template: that of a fine-tune of a step
    "$nought" train examples/sft.json --set=model="$model/snapshots/main" "${settings[@]/#/--set=}" >"$folder/tuned"
    rm -r "$model/snapshots/main" && mv "$folder/out" "$model/snapshots/main"
  fi
fi
"$nought" train "$example" "${settings[@]/#/--set=}" | tee "$folder/printed"
grep -q "trained 2 steps" "$folder/printed"
if grep -q '"adapter":' "$example"; then
  [[ -s $folder/out/adapter_model.safetensors && -s $folder/out/adapter_config.json ]]
else
  [[ -s $folder/out/model.safetensors && -s $folder/out/config.json ]]
fi
