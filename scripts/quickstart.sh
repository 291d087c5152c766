#!/usr/bin/env bash
# The first mile: installs, builds, trains a small Llama on the C++ headers of this machine with two processes, generates.
#
#   scripts/quickstart.sh [OPTION of nought train]...      for instance --set training.bf16=false
#
# The whole is to take 8 minutes at most. Installing and building take what they take; then nought measures a few steps
# and chooses how many it makes in the time that is left, 150 to the 600 of examples/quickstart.json.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
started_in=$PWD
cd "$root"
nought=build/release/bin/nought out=out/quickstart
total=480 reserve=30 least=60 most=240 # seconds: of all, for what is not training, and of the training steps

fail() {
  echo "quickstart: error: $*" >&2
  exit 1
}

trap 'echo; fail "interrupted; run it again"' INT TERM

names=() times=()
# phase NAME COMMAND...: runs a phase and notes its time.
phase() {
  local begin=$SECONDS
  names+=("$1")
  "${@:2}" || fail "$1 failed, for the reason above; run it again to go on"
  times+=($((SECONDS - begin)))
}
duration() { if (($1 < 60)); then echo "${1}s"; else printf '%dm%02ds' $(($1 / 60)) $(($1 % 60)); fi; }

mkdir -p build "$out" 2>/dev/null && [[ -w build && -w $out ]] ||
  fail "cannot write to build and $out in $root; clone to a folder of yours on a disk that can be written"
free=$(($(df --output=avail -k . | tail -n 1) / 1024)) needed=700
((free >= needed)) || fail "$free MiB are free in $root; the build and three checkpoints take $needed MiB"

began=$(date +%s)
phase install scripts/install-deps.sh
phase build scripts/build.sh release nought

left=$((total - SECONDS - reserve))
within=$((left < least ? least : left > most ? most : left))
echo "quickstart: $(duration $SECONDS) are over; training gets $(duration $within) of the $(duration $total)"
phase train "$nought" train examples/quickstart.json --ranks 2 --overwrite --within "${within}s" --min-steps 150 \
  --set training.output_dir="$out" "$@"
echo
phase generate "$nought" generate "$out" --prompt $'template<typename _Tp>\n' --max-new-tokens 400 --temperature 0.6 --seed 1

echo
for i in "${!names[@]}"; do printf '%-10s%7s\n' "${names[i]}" "$(duration "${times[i]}")"; done
printf '%-10s%7s\n' 'in all' "$(duration $SECONDS)"
first=$(sed -n '1s/.*"time":\([0-9]*\).*/\1/p' "$out/metrics.jsonl")
[[ -z $first ]] || echo "The first training step was made $(duration $((first - began))) after the start."
[[ $started_in == "$root" ]] || where=" in $root"
cat <<TEXT

What to do next${where:-}:
  generate again        $nought generate $out --prompt '#include <' --max-new-tokens 400
  talk to it            $nought chat $out --chat-template chatml --max-new-tokens 100
  go on to step 1200    $nought train examples/quickstart.json --ranks 2 --resume --set training.max_steps=1200
  train on your text    $nought train examples/quickstart.json --ranks 2 --set 'data.files=["docs/*.md"]' --set training.output_dir=out/own
  look at the losses    tail -n 3 $out/metrics.jsonl
  run the tests         ./scripts/test.sh
TEXT
