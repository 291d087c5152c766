#!/usr/bin/env bash
# Tokens per second of each way to communicate less, between two hosts that a slow link joins.
#
#   scripts/slow-link.sh [--rate 100mbit] [--delay 0ms] [--steps 40] [--ranks 2] [--run RUN.json] [METHOD]...
#
# The hosts are two namespaces of this machine (scripts/hosts.sh), whose links send at --rate (tc's token bucket) after
# --delay (netem, which some kernels lack). mpirun starts --ranks processes on each; MPI's traffic between them has no other way
# than TCP over that link. METHODs are names in scripts/methods.txt; default: all. Prints a Markdown table. Needs root and iproute2 (ip, tc). Every core is shared by both hosts, so the table compares links, not processors.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

arguments=("$@")
rate=100mbit delay=0ms steps=40 ranks=2 run=examples/quickstart.json methods=()
while (($#)); do
  case $1 in
    --rate | --delay | --steps | --ranks | --run)
      declare "${1#--}=${2:?$1 needs a value}"
      shift 2
      ;;
    -*)
      sed -n '2,10s/^# \{0,1\}//p' "$0" >&2
      exit 2
      ;;
    *)
      methods+=("$1")
      shift
      ;;
  esac
done
fail() {
  echo "slow-link: error: $*" >&2
  exit 1
}
for tool in tc mpirun awk; do command -v "$tool" >/dev/null || fail "$tool is not installed (apt-get install iproute2 openmpi-bin)"; done
nought=$(realpath "${NOUGHT:-build/release/bin/nought}")
[[ -x $nought ]] || fail "$nought is not built: scripts/build.sh, or name one in NOUGHT"
# The hosts have names and /dev/shm of their own there: sharing them, Open MPI's ranks of both would take one's memory.
if [[ -z ${HOSTS_DIR:-} ]]; then exec scripts/hosts.sh 2 --slots "$ranks" scripts/slow-link.sh "${arguments[@]}"; fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
for host in h1 h2; do
  if [[ $delay == 0ms ]]; then "$HOSTS_DIR/slow" $host "$rate"; else "$HOSTS_DIR/slow" $host "$rate" "$delay"; fi
done
on_hosts() {
  mpirun --allow-run-as-root --oversubscribe -n $((2 * ranks)) --hostfile "$HOSTS_FILE" --bind-to none \
    --mca btl tcp,vader,self --mca pml ob1 \
    -x OMP_WAIT_POLICY=passive -x OMP_NUM_THREADS="$(($(nproc) / (2 * ranks) > 0 ? $(nproc) / (2 * ranks) : 1))" "$@"
}

echo "| method | what it is | tokens/s | s per step | MB sent per rank and step | loss |"
echo "| --- | --- | ---: | ---: | ---: | ---: |"
while IFS='|' read -r name what options; do
  name=${name//[[:space:]]/} what=$(sed 's/^ *//; s/ *$//' <<<"$what")
  [[ -n $name && $name != \#* ]] || continue
  ((${#methods[@]} == 0)) || [[ " ${methods[*]} " == *" $name "* ]] || continue
  options=${options//QUARTER/$((steps / 4))} options=${options//TENTH/$((steps / 10))}
  # shellcheck disable=SC2086  # options are words
  if ! on_hosts "$nought" train "$run" --overwrite --set training.output_dir="$work/out" \
    --set training.per_device_train_batch_size=$((ranks < 2 ? 2 : 1)) \
    --set training.max_steps="$steps" --set training.warmup_steps=5 --set training.save_steps=1000000 \
    --set training.eval_strategy=no $options >"$work/$name.log" 2>&1 </dev/null; then
    tail -5 "$work/$name.log" >&2
    fail "$name did not train"
  fi
  # The first quarter finds its memory, and warms up what sends less later. A run's own clock: what is sent beside a step
  # is in the next ones' time.
  awk -v name="$name" -v what="$what" -v first=$((steps / 4)) -F'[:,]' '
    /"tokens_per_second"/ && /"bytes_sent"/ {
      for (i = 1; i < NF; ++i) {
        if ($i ~ /"step"/) step = $(i + 1); if ($i ~ /"tokens_per_second"/) rate = $(i + 1)
        if ($i ~ /"bytes_sent"/) sent = $(i + 1); if ($i ~ /"loss"/) loss = $(i + 1)
        if ($i ~ /"time"/) now = $(i + 1)
      }
      if (step == first) begin = now
      if (step > first) { ++n; bytes += sent; tokens = rate; seconds += 1 / rate; last = now }
    }
    END {
      if (n == 0) exit 1
      printf "| %s | %s | %.0f | %.3f | %.2f | %.3f |\n", name, what, n / seconds, (last - begin) / n, bytes / n / 1e6, loss
    }' "$work/out/metrics.jsonl" || fail "$name left no metrics of its last steps"
done <scripts/methods.txt
