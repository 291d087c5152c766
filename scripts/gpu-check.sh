#!/usr/bin/env bash
# The first hour on a machine with a GPU, in one command: scripts/gpu-check.sh [--minutes M] [--out FOLDER] [--emulated]
#
# Proves, measures, and says what to look at next: one line for each part, in the order of their worth, so that a run
# that is cut short (M minutes, 10 unless said) has told something. FOLDER (out/gpu-check) gets the output of each part
# and summary.md; a second run goes on with tests that have not run. Needs the driver, cuBLASLt, and either nvcc or the
# folder that scripts/package-cuda.sh makes elsewhere, which has this script, too. --emulated: the same with the emulated
# GPU of the tests, in tiny sizes. Exit code 0: all that ran passed; 1: something failed; 77: there is no GPU.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
minutes=10 out=out/gpu-check emulated=
usage() {
  echo "gpu-check: error: $1; usage: gpu-check.sh [--minutes M] [--out FOLDER] [--emulated]" >&2
  exit 2
}
while (($#)); do
  case $1 in
    --minutes) [[ ${2:-} =~ ^[1-9][0-9]{0,3}$ ]] || usage "--minutes must be 1 to 9999, got ${2:-nothing}"; minutes=$2; shift ;;
    --out) [[ -n ${2:-} ]] || usage "--out names no folder"; out=$2; shift ;;
    --emulated) emulated=1 ;;
    *) usage "unknown argument $1" ;;
  esac
  shift
done
mkdir -p "$out" && out=$(cd "$out" && pwd)
end=$((SECONDS + 60 * minutes))

# Where programs and files are: beside this script in a package, else in the repository.
if [[ -x $here/nought && -x $here/test_cuda ]]; then
  nought=$here/with-libraries tests=$here/test_cuda files=$here
else
  files=$(cd "$here/.." && pwd)
  if [[ -n $emulated ]]; then
    bin=${NOUGHT_BIN:-$files/build/release/bin}
    nought=$bin/nought_emulated tests=$bin/test_cuda
  else
    (cd "$files" && scripts/build.sh release -DNOUGHT_CUDA=ON nought test_cuda_device) >"$out/build.log" 2>&1 || {
      echo "gpu-check: error: the build failed: see $out/build.log" >&2
      exit 1
    }
    nought=$files/build/release/bin/nought tests=$files/build/release/bin/test_cuda_device
  fi
  [[ -x $nought && -x $tests ]] || { echo "gpu-check: error: $nought and $tests are not built" >&2; exit 1; }
fi

summary=$out/summary.md failures=0 next=()
printf '# gpu-check, %s\n\n| part | result | seconds | what it says |\n| --- | --- | --- | --- |\n' "$(date -u +%Y-%m-%d)" >"$summary"

# say PART RESULT SECONDS TEXT: one line, here and in the summary.
say() {
  printf '%-12s %-8s %5ss  %s\n' "$1" "$2" "$3" "$4"
  printf '| %s | %s | %s | %s |\n' "$1" "$2" "$3" "${4//|/\\|}" >>"$summary"
}
# part NAME LIMIT COMMAND...: runs a function that prints, as its last line, what the part says.
part() {
  local name=$1 limit=$2 left=$((end - SECONDS)) begin=$SECONDS code=0
  shift 2
  if ((left < 5)); then
    say "$name" "not run" 0 "the $minutes minutes are over"
    next+=("$name has not run: go on with more --minutes")
    return
  fi
  local within=$((left < limit ? left : limit))
  within=$within "$@" >"$out/$name.log" 2>&1 || code=$?
  local text
  text=$(grep -v '^ *$' "$out/$name.log" | tail -n 1 | cut -c 1-160) || true
  case $code in
    0) say "$name" passed $((SECONDS - begin)) "$text" ;;
    75) say "$name" cut $((SECONDS - begin)) "$text"; next+=("$name goes on when this is run again") ;;
    77) say "$name" skipped $((SECONDS - begin)) "$text" ;;
    124) say "$name" cut $((SECONDS - begin)) "ended after ${within}s"; next+=("$name: see $out/$name.log") ;;
    *)
      failures=$((failures + 1))
      say "$name" FAILED $((SECONDS - begin)) "$text"
      next+=("$name failed: see $out/$name.log")
      ;;
  esac
}

show_info() { # the program, the GPU, its libraries
  timeout "$within" "$nought" info | tee "$out/info.txt"
  sed -n 's/^  GPU  *//p' "$out/info.txt"
}
# run_tests FILTER: what is in the record has run before. Says how many passed, and the first that failed.
run_tests() {
  local code=0 record=$out/$1.record
  timeout "$((within + 5))" "$tests" --record "$record" --seconds "$within" --gtest_filter="$2" --gtest_brief=1 || code=$?
  [[ -e $record ]] || return "$code"
  local failed
  failed=$(sed -n 's/^failed \([^ ]*\) .*/\1/p' "$record" | head -n 1)
  echo "$(grep -c '^passed' "$record") passed, $(grep -c '^skipped' "$record") skipped, $(grep -c '^failed' "$record") failed${failed:+; the first: $failed}"
  return "$code"
}
# A run on the GPU and the same on the CPU: how far their losses are apart.
train_both() {
  local device steps=$1 data sizes=()
  data="[\"$files/docs/*.md\"]"
  [[ -z $emulated ]] || sizes=(--set model.hidden_size=32 --set model.intermediate_size=64 --set model.num_hidden_layers=1
    --set model.num_attention_heads=2 --set model.num_key_value_heads=1 --set data.seq_length=16)
  for device in cuda cpu; do
    timeout "$within" "$nought" train "$files/examples/quickstart.json" --overwrite --device $device --set data.files="$data" \
      --set training.max_steps="$steps" --set training.logging_steps=1 --set training.save_steps=1000000 \
      --set training.bf16=false --set training.warmup_steps=2 "${sizes[@]}" --set training.output_dir="$out/train-$device"
  done
  echo "--- loss on the GPU and on the CPU"
  paste <(losses "$out/train-cuda") <(losses "$out/train-cpu") | awk '
    NF == 2 { d = ($1 - $2) / $2; if (d < 0) d = -d; if (d > most) most = d; n++ }
    END { printf "%d losses: at most %.1e apart from those of the CPU\n", n, most; exit !(n > 0 && most < 1e-3) }'
}
losses() { sed -n 's/.*"loss":\([0-9.eE+-]*\).*/\1/p' "$1/metrics.jsonl"; }
bench_step() { # each operation, and behind them the step itself again
  local figures
  # The folders that its file names lie there.
  figures=$(cd "$files" && timeout "$within" "$nought" bench step "$1" --device cuda --samples 5 --breakdown) || return
  echo "$figures"
  sed -n 3p <<<"$figures"
}
timings() { # the tests' table: each operation beside the fastest copy and product
  timeout "$within" "$tests" --record "$out/timings.record" --gtest_filter='CudaFacts.*' --gtest_brief=1
}
ledger() { # the peaks of the run above, as planned and as measured, but for the workspace of products, which is a limit
  sed -n '/^peak memory by category/,/^$/p' "$out/training.log" | awk '
    /^$/ { exit }
    { print }
    $1 == "parameters" || $1 == "gradients" || $1 == "optimizer" || $1 == "activations" {
      n++; if ($2 != $4 || $3 != $5) { apart++; name = $1 }
    }
    END { print n - apart " of " n " categories as planned" (apart ? ", not " name : ""); exit !(n == 4 && !apart) }'
}
python_with_gpu() {
  python3 -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2>/dev/null ||
    { echo "no Python with a PyTorch that sees the GPU"; return 77; }
}
peer() {
  python_with_gpu || return
  timeout "$within" "$files/bench/compare.sh" --device cuda --python "$(command -v python3)" --rounds 3 --steps 9 --nought "$nought"
}
peer_attention() { # cuDNN's and FlashAttention, in the shapes of the timings
  python_with_gpu || return
  timeout "$within" python3 "$files/bench/peer/attention.py"
}
# probe_ranks N: logits of N processes on the one GPU, beside those of one.
probe_ranks() {
  local golden=$files/golden/open/llama count
  [[ -d $golden ]] || golden=$files/tests/golden/open/llama
  command -v mpirun >/dev/null || { echo "no mpirun on this machine: ranks of threads are among the tests of models"; return 77; }
  for count in 1 "$1"; do
    timeout "$within" "$nought" probe "$golden" --input "$golden/golden.safetensors" --device cuda:0 --ranks "$count" \
      --output "$out/probe-$count.safetensors" || return
  done
  cmp "$out/probe-1.safetensors" "$out/probe-$1.safetensors" || return
  echo "logits of $1 ranks on one GPU have the bits of one rank"
}
several_gpus() {
  local count mesh
  count=$(nvidia-smi --list-gpus 2>/dev/null | wc -l) || count=0
  ((count >= 2)) || { echo "one GPU: NCCL takes two"; return 77; }
  for mesh in 'deepspeed.zero_optimization.stage=3' 'training.parallelism_config.tp_size=2' 'training.parallelism_config.pp_size=2'; do
    timeout "$within" "$nought" train "$files/examples/quickstart.json" --ranks 2 --device cuda --collectives nccl --overwrite \
      --set "$mesh" --set data.files="[\"$files/docs/*.md\"]" --set training.max_steps=10 --set training.output_dir="$out/train-nccl" || return
  done
  timeout "$within" "$tests" --gtest_filter='Links.*:*LinkedRanks*:LinkedModels.*:LinkFaults.*' --gtest_brief=1
}

# The suites of each part: names that end in a star are of several models or sizes.
attention='*Attention*' products='MatMul*:CudaProducts*' streams='CudaStreams*:CudaTimeline*:CudaTransfers*:CudaDevice*'
memory='CudaMemory*:CudaWorkspace*:*CudaPlan*:CudaOffload*' wire='Wire*:Compression*:CudaBits*:*CudaCompressed*'
models='*CudaModels*:*CudaLayouts*'
steps=50 works=(W4 W2 W1 gpt2_1558m llama_8b_lora)
if [[ -n $emulated ]]; then # one or two tests of each, and no times: they would be the emulator's
  attention='CudaAttention.operands*' products='MatMulTest.a_bf16*' streams='CudaStreams.one_stream*' memory='CudaMemory.*'
  wire='CudaBits.of_records_do_not*' models='*CudaLayouts.stages*qk_norms' steps=3 works=()
fi

part info 60 show_info
if [[ -z $emulated ]] && ! grep -q '^  GPU .*capability' "$out/info.txt"; then
  echo "gpu-check: no GPU: see $out/info.log" >&2
  exit 77
fi
if [[ -z $emulated ]]; then
  part kernels 120 run_tests kernels "*-$attention:$products:$streams:$memory:$wire:$models:CudaProgram*:Link*:*LinkedRanks*"
fi
part products 60 run_tests products "$products"
part attention 60 run_tests attention "$attention"
part streams 60 run_tests streams "$streams"
part memory 60 run_tests memory "$memory"
part models 120 run_tests models "$models"
part wire 60 run_tests wire "$wire"
part training 240 train_both "$steps"
part ledger 10 ledger
for work in "${works[@]}"; do
  file=$files/bench/gpu/$work.json
  [[ -e $file ]] || file=$work
  part "step-$work" 120 bench_step "$file"
done
if [[ -z $emulated ]]; then
  part timings 60 timings
  part probe 60 probe_ranks 2
  part attentions 60 peer_attention
  part peer 300 peer
  part several 300 several_gpus
else
  say speed skipped 0 "times of an emulated GPU say nothing: steps, operations, PyTorch beside them"
  say several skipped 0 "the emulated GPU is one; ranks of threads are tested by test_cuda"
fi

{
  printf '\n## What to look at next\n\n'
  ((${#next[@]})) && printf -- '- %s\n' "${next[@]}"
  ((${#next[@]})) || echo "- nothing failed: docs/cuda.md says what the lines mean, docs/performance.md what others measured"
} >>"$summary"
echo "gpu-check: $((failures)) failed; $summary"
((failures == 0))
