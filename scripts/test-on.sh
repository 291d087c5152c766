#!/usr/bin/env bash
# Runs the program as an older CPU would, emulated: scripts/test-on.sh haswell [BUILD_DIR]
#
# The small kernel tests, three steps of training with two ranks, and text from the result. qemu's emulation ends where a
# process starts another program, so each rank is started through it. qemu 7.2 knows AVX2 and no AVX-512.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cpu=${1:-}
build=${2:-$root/build/release}

fail() {
  echo "test-on: error: $*" >&2
  exit 1
}

case $cpu in
  haswell) model=Haswell-noTSX,-pcid,-x2apic,-tsc-deadline,-invpcid isa=avx2 ;; # less what a program cannot use
  *) fail "unknown CPU \"$cpu\": use haswell" ;;
esac
command -v qemu-x86_64 >/dev/null || fail "qemu-x86_64 is missing: apt-get install qemu-user"
[[ -x $build/bin/nought && -x $build/bin/test_kernels ]] || fail "no programs in $build/bin: run scripts/build.sh"

emulate=(qemu-x86_64 -cpu "$model")
export OMP_WAIT_POLICY=passive OMP_NUM_THREADS=1
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
cd "$root"

found=$("${emulate[@]}" "$build/bin/nought" info --json | sed -n 's/.*"isa": "\(.*\)",$/\1/p' | head -n 1)
[[ $found == "$isa" ]] || fail "nought info says $found on $model, expected $isa"

filter=$("$build/bin/test_kernels" --list_sizes | sed -nE 's/^(unmarked|small) //p' | paste -sd :)
timeout 150 "${emulate[@]}" "$build/bin/test_kernels" --gtest_brief=1 --gtest_filter="$filter"

allow=()
[[ $(id -u) -eq 0 ]] && allow=(--allow-run-as-root)
smaller=(model.hidden_size=64 model.intermediate_size=128 model.num_hidden_layers=2 model.num_attention_heads=4
  model.num_key_value_heads=2 data.seq_length=32 'data.files=["README.md"]' training.max_steps=3 training.warmup_steps=1
  training.logging_steps=1 training.output_dir="$out")
timeout 100 mpirun "${allow[@]}" --oversubscribe --bind-to none -np 2 "${emulate[@]}" "$build/bin/nought" \
  train examples/quickstart.json --overwrite "${smaller[@]/#/--set=}"
"${emulate[@]}" "$build/bin/nought" generate "$out" --prompt 'int main(' --max-new-tokens 8 --seed 1
echo "test-on: $cpu is fine"
