#!/usr/bin/env bash
# Fuzzes the readers of what other programs write: scripts/fuzz-foreign.sh [SECONDS]
#
# libFuzzer with the address and undefined-behaviour sanitizers (preset fuzz, clang++): safetensors and archives of torch,
# DeepSpeed's states, the .metadata of torch.distributed.checkpoint, Parquet files, adapters of peft, states of
# bitsandbytes; bodies of requests to a server, the forms that they ask answers in (GBNF, regular expressions, JSON schemas), and bytes
# to its socket, on loopback; SECONDS in all (600), one process. What it finds stays in
# build/fuzz/found, and the corpus as it is. Every run writes files: in memory where /dev/shm is, unless TMPDIR says
# otherwise.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
seconds=${1:-600}
[[ ! -d /dev/shm || -n ${TMPDIR:-} ]] || export TMPDIR=/dev/shm
targets=(safetensors deepspeed_states dcp_metadata parquet adapter_config adapter_weights quant_state gbnf regex json_schema
  api_request http_bytes)
[[ -e build/fuzz/CMakeCache.txt ]] || cmake --preset fuzz
cmake --build build/fuzz --parallel "${NOUGHT_JOBS:-$(nproc)}" --target "${targets[@]/#/fuzz_}"
for target in "${targets[@]}"; do
  mkdir -p "build/fuzz/found/$target"
  build/fuzz/bin/"fuzz_$target" -max_total_time=$((seconds / ${#targets[@]})) -max_len=65536 -timeout=20 -rss_limit_mb=2048 \
    -artifact_prefix="build/fuzz/found/$target-" "build/fuzz/found/$target" "tests/fuzz/corpus/$target"
done
