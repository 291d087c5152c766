#!/usr/bin/env bash
# Trains a model whose states (the optimizer's and parameters) are four times the memory that its process may have:
#
#   scripts/offload-limit.sh [FOLDER] [NOUGHT OPTION]...
#
# States are in files in FOLDER (build/offload), on the drive that is to be measured. The limit is a fourth of their
# bytes: of a control group below this process's own (cgroup v1), or of a scope of systemd (v2); where neither is to be
# had, training.host_memory, which the ledger enforces. Options go to every nought, such as --set training.max_steps=9.
#
# Measures a step in memory, a step from files, and the drive. The bound is what the drive allows: the step in memory,
# and then the bytes that a step reads and writes at the drive's rates. Prints a table, which has the harder bound of
# transfers that are hidden during the passes, too. Exit code 1 if the peak of resident memory is above the limit, or
# the speed below 70% of the bound. RATIO: states over limit, 4 if not given. OF=optimizer: a fourth of the optimizer's
# states alone.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

folder=build/offload
if (($#)) && [[ $1 != -* ]]; then
  folder=$1
  shift
fi
ratio=${RATIO:-4}
counted=parameters,optimizer
if [[ ${OF:-} == optimizer ]]; then counted=optimizer; fi
nought=build/release/bin/nought
mkdir -p "$folder"
scratch=$(mktemp -d "$folder/limit.XXXXXX") # a checkpoint of the run has 14 bytes for each parameter
group=
cleanup() {
  if [[ -n $group && -d $group ]]; then rmdir "$group" || true; fi
  rm -rf "$scratch"
}
trap cleanup EXIT

# --- the run ---

common=(examples/quickstart.json --set model.hidden_size=1024 --set model.intermediate_size=4096
  --set model.num_hidden_layers=24 --set model.num_attention_heads=8 --set training.recompute=full
  --set training.bf16=true --set training.max_steps=6 --set training.warmup_steps=0 --set training.logging_steps=1
  --set training.save_steps=0 --set "training.output_dir=$scratch/out")
zero=deepspeed.zero_optimization
offload=(--set "$zero.stage=3" --set "$zero.sub_group_size=1000000"
  --set "$zero.offload_optimizer={\"device\": \"nvme\", \"nvme_path\": \"$folder\", \"pipeline_read\": true, \"pipeline_write\": true, \"buffer_count\": 12}"
  --set "$zero.offload_param={\"device\": \"nvme\", \"nvme_path\": \"$folder\", \"max_in_cpu\": 0, \"buffer_count\": 2}")
if ! "$nought" check "${common[@]}" "${offload[@]}" "$@" >"$scratch/check" 2>&1; then
  cat "$scratch/check" >&2
  exit 1
fi

# Numbers of `nought plan --json`, of which each stands on a line of its own.
plan() { "$nought" plan "${common[@]}" "${offload[@]}" "$@" --json; }
# numbers NAME KEY FILE: those of the parts of a step whose names end so, one per line.
numbers() { awk -F'[:,]' -v name="$1\"" -v key="\"$2\"" '/"name"/ { here = index($2, name) } here && $1 ~ key { print $2 + 0 }' "$3"; }
bytes() { numbers "$1" bytes "$scratch/before" | awk '{ sum += $1 } END { print sum + 0 }'; }
plan "$@" >"$scratch/before"
states=$(awk -F'[:,]' -v counted="\"(${counted/,/|})\"" '/"file": \{/ { here = 1 } here && $1 ~ counted { sum += $2 } here && /\}/ { print sum; exit }' "$scratch/before")
tokens=$(awk -F'[:,]' '/"tokens_per_step"/ { print $2 + 0 }' "$scratch/before")
limit=$(awk -v s="$states" -v r="$ratio" 'BEGIN { printf "%d", s / r / 4096 }')
limit=$((limit * 4096))

# --- the limit ---

how=
prefix=()
budget=()
if own=$(sed -n 's/^[0-9]*:memory://p' /proc/self/cgroup) && [[ -n $own ]] &&
  [[ -w /sys/fs/cgroup/memory$own ]] && mkdir "/sys/fs/cgroup/memory$own/nought-$$" 2>/dev/null; then
  group=/sys/fs/cgroup/memory$own/nought-$$
  echo "$limit" >"$group/memory.limit_in_bytes"
  how="a control group"
elif systemd-run --user --scope -q -p MemoryMax="$limit" true 2>/dev/null; then
  prefix=(systemd-run --user --scope -q -p "MemoryMax=$limit" -p MemorySwapMax=0)
  how="a scope of systemd"
else
  budget=(--set "training.host_memory=${limit}B")
  how="training.host_memory"
fi

# --- the runs ---

# train NAME OPTION...: runs it, and writes the median of its steps' seconds and its peak of resident memory.
train() {
  local name=$1 peak=0 now pid child
  shift
  rm -rf "$scratch/out"
  if [[ $name == files && -n $group ]]; then
    (echo "$BASHPID" >"$group/cgroup.procs" && exec "$nought" train "${common[@]}" "$@") >"$scratch/$name" 2>&1 &
  elif [[ $name == files ]]; then
    "${prefix[@]}" "$nought" train "${common[@]}" "$@" >"$scratch/$name" 2>&1 &
  else
    "$nought" train "${common[@]}" "$@" >"$scratch/$name" 2>&1 &
  fi
  pid=$!
  while kill -0 "$pid" 2>/dev/null; do
    for child in "$pid" $(cat "/proc/$pid/task/$pid/children" 2>/dev/null || true); do
      now=$(sed -n 's/^VmHWM:[^0-9]*\([0-9]*\) kB/\1/p' "/proc/$child/status" 2>/dev/null || true)
      if ((${now:-0} > peak)); then peak=$now; fi
    done
    sleep 0.2
  done
  if ! wait "$pid"; then
    tail -n 20 "$scratch/$name" >&2
    echo "offload-limit: error: the run \"$name\" failed under a limit of $limit bytes by $how" >&2
    exit 1
  fi
  sed -n 's/.*"tokens_per_second":\([0-9.e+-]*\).*/\1/p' "$scratch/out/metrics.jsonl" | sort -g >"$scratch/$name.rates"
  awk -v tokens="$tokens" '{ rate[NR] = $1 } END { print tokens / rate[int(NR / 2) + 1] }' "$scratch/$name.rates" >"$scratch/$name.median"
  echo "$((peak * 1024))" >"$scratch/$name.peak"
}
train files "${offload[@]}" "${budget[@]}" "$@"
train memory "$@"
plan "$@" >"$scratch/after"

# --- the table ---

# The faster of two measurements of the drive: the bound is hard.
rate() { { numbers "$1" per_second "$scratch/before" && numbers "$1" per_second "$scratch/after"; } | sort -g | tail -n 1; }
if [[ $counted == optimizer ]]; then what="optimizer states"; else what="optimizer states and parameters"; fi
awk -v limit="$limit" -v how="$how" -v what="$what" -v states="$states" -v peak="$(cat "$scratch/files.peak")" \
  -v memory="$(cat "$scratch/memory.median")" -v held="$(cat "$scratch/memory.peak")" -v files="$(cat "$scratch/files.median")" \
  -v read="$(bytes 'from files')" -v written="$(bytes 'to files')" \
  -v in_rate="$(rate 'from files')" -v out_rate="$(rate 'to files')" 'BEGIN {
    g = 1024 ^ 3
    bound = memory + read / in_rate + written / out_rate
    percent = 100 * bound / files
    crossing = read / in_rate + written / out_rate
    hidden = crossing > memory ? crossing : memory
    printf "| %s | %.2f GiB |\n", what, states / g
    printf "| limit, by %s | %.2f GiB; states are %.1f times that |\n", how, limit / g, states / limit
    printf "| peak of resident memory | %.2f GiB; in memory it is %.2f GiB |\n", peak / g, held / g
    printf "| a step reads, writes | %.2f GiB at %.2f GiB/s, %.2f GiB at %.2f GiB/s |\n", read / g, in_rate / g, written / g, out_rate / g
    printf "| seconds per step in memory | %.2f |\n", memory
    printf "| the bound of the drive: these and its transfers | %.2f |\n", bound
    printf "| the bound if all transfers were hidden | %.2f: of its speed the run has %.0f%% |\n", hidden, 100 * hidden / files
    printf "| seconds per step from files | %.2f: %.0f%% of the speed of the bound |\n", files, percent
    if (peak > limit) print "offload-limit: error: resident memory was above the limit" > "/dev/stderr"
    if (percent < 70) print "offload-limit: error: less than 70% of the bound" > "/dev/stderr"
    exit peak > limit || percent < 70
  }'
