#!/usr/bin/env bash
# Loss against steps, and against bytes, of each way to communicate less on the quickstart's task: a table and a picture.
#
#   scripts/loss-curves.sh [--steps 300] [--ranks 2] [--seeds 1] [--svg FILE] [--run RUN.json] [--work FOLDER] [METHOD]...
#
# The ranks of this machine are taken for two hosts with --ranks each, and samples of a step are as many as with two
# ranks. METHODs are names in scripts/methods.txt; default: all. Losses are means of the last 50 steps and bytes what
# rank 0 sent until then. With several --seeds every method trains from each of that many first weights and orders of
# samples (training.seed = 1 and on); losses are then their means, with the standard error of what a method loses
# against the first one at equal seeds. The svg (loss-curves.awk) shows the loss of the first seed, a mean over 10 steps,
# with a column for each group of methods. A run whose curve is in --work is not repeated.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

steps=300 ranks=2 seeds=1 first=1 svg=build/loss-curves.svg run=examples/quickstart.json work='' methods=()
while (($#)); do
  case $1 in
    --steps | --ranks | --seeds | --svg | --run | --work)
      declare "${1#--}=${2:?$1 needs a value}"
      shift 2
      ;;
    -*)
      sed -n '2,11s/^# \{0,1\}//p' "$0" >&2
      exit 2
      ;;
    *)
      methods+=("$1")
      shift
      ;;
  esac
done
nought=${NOUGHT:-build/release/bin/nought} scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
work=${work:-$scratch}
mkdir -p "$work" "$(dirname "$svg")"

# train_once NAME SEED OPTION...: leaves NAME.SEED.curve with step, loss and bytes so far in a line.
train_once() {
  local name=$1 seed=$2
  shift 2
  [[ ! -s $work/$name.$seed.curve ]] || return 0
  if ! LOCAL_WORLD_SIZE=$ranks "$nought" train "$run" --ranks $((2 * ranks)) --overwrite \
    --set training.output_dir="$scratch/out" --set training.per_device_train_batch_size=$((ranks < 2 ? 2 : 1)) \
    --set training.max_steps="$steps" --set training.save_steps=1000000 --set training.seed="$seed" "$@" \
    >"$scratch/log" 2>&1 </dev/null; then
    tail -5 "$scratch/log" >&2
    echo "loss-curves: error: $name did not train" >&2
    exit 1
  fi
  sed -n 's/.*"step":\([0-9]*\),"loss":\([^,]*\),.*"bytes_sent":\([0-9]*\),.*/\1 \2 \3/p' "$scratch/out/metrics.jsonl" |
    awk '{ sent += $3; print $1, $2, sent }' >"$scratch/curve"
  mv "$scratch/curve" "$work/$name.$seed.curve"
}

last_loss() { tail -50 "$1" | awk '{ sum += $2 } END { print sum / NR }'; }

order=() group='' && declare -A group_of=()
echo "| method | what it is | loss of the last 50 steps | against the first | MB sent by rank 0 |"
echo "| --- | --- | ---: | ---: | ---: |"
while IFS='|' read -r name what options; do
  [[ $name != '#: '* ]] || group=${name#'#: '}
  name=${name//[[:space:]]/} what=$(sed 's/^ *//; s/ *$//' <<<"$what")
  [[ -n $name && $name != \#* ]] || continue
  ((${#methods[@]} == 0)) || [[ " ${methods[*]} " == *" $name "* ]] || continue
  options=${options//QUARTER/$((steps / 4))} options=${options//TENTH/$((steps / 10))}
  order+=("$name") group_of[$name]=$group
  # shellcheck disable=SC2086  # options are words
  for ((seed = first; seed < first + seeds; ++seed)); do train_once "$name" "$seed" $options; done
  sent=$(tail -1 "$work/$name.$first.curve" | awk '{ printf "%.1f", $3 / 1e6 }')
  for ((seed = first; seed < first + seeds; ++seed)); do
    echo "$(last_loss "$work/$name.$seed.curve") $(last_loss "$work/${order[0]}.$seed.curve")"
  done | awk -v name="$name" -v what="$what" -v sent="$sent" '
    { loss += $1; more = 100 * ($1 / $2 - 1); sum += more; squares += more * more }
    END {
      spread = NR < 2 ? "" : sprintf(" ± %.1f", sqrt((squares - sum * sum / NR) / (NR - 1) / NR + 1e-12))
      printf "| %s | %s | %.4f | %+.1f%s%% | %s |\n", name, what, loss / NR, sum / NR, spread, sent
    }'
done <scripts/methods.txt

# The loss of a point is a mean of 10 steps.
for name in "${order[@]}"; do
  awk -v name="$name" -v group="${group_of[$name]}" '
    { sum += $2 }
    NR % 10 == 0 { printf "%s|%s|%d|%.4f|%.0f\n", group, name, $1, sum / 10, $3; sum = 0 }' "$work/$name.$first.curve"
done | awk -v steps="$steps" -f scripts/loss-curves.awk >"$svg"
echo
echo "wrote $svg"
