#!/usr/bin/env bash
# Tokens per second of each way to communicate less, between two hosts that a slow link joins.
#
#   scripts/slow-link.sh [--rate 100mbit] [--delay 0ms] [--steps 40] [--ranks 2] [--run RUN.json] [METHOD]...
#
# The hosts are two network namespaces of this machine, joined by a pair of virtual Ethernet devices whose ends send at
# --rate (tc's token bucket) after --delay. mpirun starts --ranks processes on each; MPI's traffic between them has no
# other way than TCP over that link. METHODs are names in scripts/methods.txt; default: all. Prints a Markdown table.
# Needs root and iproute2 (ip, tc). Every core is shared by both hosts, so the table compares links, not processors.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

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
((EUID == 0)) || fail "network namespaces need root: run it with sudo"
for tool in ip tc mpirun awk; do command -v "$tool" >/dev/null || fail "$tool is not installed (apt-get install iproute2 openmpi-bin)"; done
nought=$(realpath "${NOUGHT:-build/release/bin/nought}")
[[ -x $nought ]] || fail "$nought is not built: scripts/build.sh, or name one in NOUGHT"

hosts=("nought$$a" "nought$$b") work=$(mktemp -d)
clean() {
  for host in "${hosts[@]}"; do ip netns del "$host" 2>/dev/null || true; done
  rm -rf "$work"
}
trap clean EXIT
trap 'exit 130' INT TERM

address() { echo "10.199.$(($$ % 250)).$(($1 + 1))"; }
for i in 0 1; do ip netns add "${hosts[i]}"; done
ip link add "nl${$}a" type veth peer name "nl${$}b"
i=0
for end in "nl${$}a" "nl${$}b"; do
  ip link set "$end" netns "${hosts[i]}"
  ip -n "${hosts[i]}" addr add "$(address $i)/24" dev "$end"
  ip -n "${hosts[i]}" link set "$end" up
  ip -n "${hosts[i]}" link set lo up
  ip netns exec "${hosts[i]}" tc qdisc add dev "$end" root handle 1: tbf rate "$rate" burst 64kb latency 200ms
  [[ $delay == 0ms ]] || ip netns exec "${hosts[i]}" tc qdisc add dev "$end" parent 1: handle 10: netem delay "$delay"
  i=$((i + 1))
done

# mpirun's way to the other host: not ssh, but its namespace.
cat >"$work/agent" <<AGENT
#!/usr/bin/env bash
shift
exec ip netns exec ${hosts[1]} bash -c "\$*"
AGENT
chmod +x "$work/agent"
on_hosts() {
  ip netns exec "${hosts[0]}" mpirun --allow-run-as-root --oversubscribe -n $((2 * ranks)) \
    --host "$(address 0):$ranks,$(address 1):$ranks" --bind-to none \
    --mca plm_rsh_agent "$work/agent" --mca btl tcp,vader,self --mca pml ob1 \
    --mca btl_tcp_if_include "$(address 0)/24" --mca oob_tcp_if_include "$(address 0)/24" \
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
