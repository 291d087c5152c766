#!/usr/bin/env bash
# Loss against steps, and against bytes, of each way to communicate less on the quickstart's task: a table and a picture.
#
#   scripts/loss-curves.sh [--steps 300] [--ranks 2] [--seeds 1] [--svg FILE] [--run RUN.json] [--work FOLDER] [METHOD]...
#
# The ranks of this machine are taken for two hosts with --ranks each, and samples of a step are as many as with two
# ranks. METHODs are names in scripts/methods.txt; default: all. Losses are means of the last 50 steps and bytes what
# rank 0 sent until then. With several --seeds every method trains from each of that many first weights and orders of
# samples (training.seed = 1 and on); losses are then their means, with the standard error of what a method loses
# against the first one at equal seeds. The svg shows the loss, a mean over 10 steps, by steps on the left and by bytes
# (logarithmic) on the right, of the first seed. A run whose curve is in --work is not repeated.
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
      sed -n '2,13s/^# \{0,1\}//p' "$0" >&2
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

order=()
echo "| method | what it is | loss of the last 50 steps | against the first | MB sent by rank 0 |"
echo "| --- | --- | ---: | ---: | ---: |"
while IFS='|' read -r name what options; do
  name=${name//[[:space:]]/} what=$(sed 's/^ *//; s/ *$//' <<<"$what")
  [[ -n $name && $name != \#* ]] || continue
  ((${#methods[@]} == 0)) || [[ " ${methods[*]} " == *" $name "* ]] || continue
  options=${options//QUARTER/$((steps / 4))} options=${options//TENTH/$((steps / 10))}
  order+=("$name")
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

for name in "${order[@]}"; do sed "s/^/$name /" "$work/$name.$first.curve"; done | awk -v steps="$steps" '
  function x_of(panel, at) { return panel == 0 ? 60 + 360 * at / steps : 520 + 360 * (log(at) - low_b) / (high_b - low_b) }
  function y_of(loss) { return 340 - 300 * (loss - low) / (high - low) }
  {
    if (!($1 in count)) names[++methods] = $1
    n = ++count[$1]; sum[$1] += $3
    if (n % 10) next
    k = n / 10; loss[$1, k] = sum[$1] / 10; step[$1, k] = $2; bytes[$1, k] = $4; points[$1] = k; sum[$1] = 0
    if (low == "" || loss[$1, k] < low) low = loss[$1, k]
    if (k > 2 && loss[$1, k] > high) high = loss[$1, k]
    if ($4 > 0 && (low_b == "" || log($4) < low_b)) low_b = log($4)
    if ($4 > 0 && log($4) > high_b) high_b = log($4)
  }
  END {
    split("#1f6feb #d1242f #1a7f37 #9a6700 #8250df #57606a #bf3989 #0a7ea4 #e16f24 #116329 #6639ba #24292f #5ec4ff #ff8182 #6fdd8b #d4a72c", colors, " ")
    if (high_b - low_b > log(1000)) low_b = high_b - log(1000)  # ways that send nothing for long
    print "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"900\" height=\"" 400 + 20 * int((methods + 4) / 5) "\" font-family=\"sans-serif\" font-size=\"12\">"
    print "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>"
    for (panel = 0; panel < 2; ++panel) {
      left = panel == 0 ? 60 : 520
      print "<rect x=\"" left "\" y=\"40\" width=\"360\" height=\"300\" fill=\"none\" stroke=\"#999\"/>"
      print "<text x=\"" left + 180 "\" y=\"376\" text-anchor=\"middle\">" (panel == 0 ? "steps" : "MB sent by rank 0 so far") "</text>"
      for (i = 0; i <= 4; ++i) {
        value = low + (high - low) * i / 4
        printf "<text x=\"%d\" y=\"%.0f\" text-anchor=\"end\">%.2f</text>\n", left - 6, y_of(value) + 4, value
        at = panel == 0 ? steps * i / 4 : exp(low_b + (high_b - low_b) * i / 4)
        label = panel == 0 ? sprintf("%d", at) : sprintf(at < 1e7 ? "%.1f" : "%.0f", at / 1e6)
        printf "<text x=\"%.0f\" y=\"358\" text-anchor=\"middle\">%s</text>\n", left + 90 * i, label
      }
      for (m = 1; m <= methods; ++m) {
        line = ""
        for (k = 1; k <= points[names[m]]; ++k) {
          at = panel == 0 ? step[names[m], k] : bytes[names[m], k]
          if (at <= 0 || (panel == 1 && log(at) < low_b) || loss[names[m], k] > high) continue
          line = line sprintf("%.1f,%.1f ", x_of(panel, at), y_of(loss[names[m], k]))
        }
        print "<polyline fill=\"none\" stroke-width=\"1.5\" stroke=\"" colors[(m - 1) % 16 + 1] "\" points=\"" line "\"/>"
      }
    }
    print "<text x=\"60\" y=\"24\">loss, mean of 10 steps</text>"
    for (m = 1; m <= methods; ++m) {
      x = 60 + 165 * ((m - 1) % 5); y = 396 + 20 * int((m - 1) / 5)
      print "<rect x=\"" x "\" y=\"" y - 9 "\" width=\"20\" height=\"4\" fill=\"" colors[(m - 1) % 16 + 1] "\"/><text x=\"" x + 26 "\" y=\"" y - 3 "\">" names[m] "</text>"
    }
    print "</svg>"
  }' >"$svg"
echo
echo "wrote $svg"
