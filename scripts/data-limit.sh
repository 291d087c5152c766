#!/usr/bin/env bash
# Cleans and dedups more text than memory holds, and kills it on the way: scripts/data-limit.sh [MIB]
#
# MIB of text (8192) go through `nought data clean` and `nought data dedup --minhash` with at most 1 GiB of private memory
# (ulimit -d). Each also runs while it is killed up to 20 times, at growing intervals, and must make the same files.
# Exit code 0 if everything holds. It needs four times the text on the disk of TMPDIR.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
nought=$root/build/release/bin/nought
mib=${1:-8192}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
ulimit -d $((1 << 20))

# Documents of 40 to 240 words of a small vocabulary; every fifth is one of 500 texts again.
awk -v bytes=$((mib << 20)) 'BEGIN {
  srand(1)
  split("the of and to be have that with river house road under window letter number answer question morning paper light story water engine garden", word, " ")
  while (written < bytes) {
    if (++n % 5 == 0 && n > 2500) text = old[n % 500]
    else {
      text = ""
      for (i = 40 + int(rand() * 200); i > 0; --i) text = text word[1 + int(rand() * 24)] (i % 3 ? "" : int(rand() * 90)) (i % 11 ? " " : ". ")
    }
    old[n % 500] = text
    written += length(text) + 24
    printf "{\"id\":%d,\"text\":\"%s\"}\n", n, text
  }
}' >text.jsonl

# run NAME COMMAND...: once whole, once with kills.
run() {
  local name=$1 seconds=0.5 kills=0
  shift
  date "+%T $name"
  "$nought" data "$@" -o "$name.whole" --shard-size 16MiB | tail -1
  while ! { timeout -s KILL "$seconds" "$nought" data "$@" -o "$name.killed" --shard-size 16MiB >"$name.log" 2>&1; } 2>/dev/null; do
    grep 'error:' "$name.log" && exit 1
    kills=$((kills + 1))
    if ((kills == 20)); then seconds=100000; else seconds=$(awk "BEGIN { print $seconds * 1.25 }"); fi
  done
  diff -r --exclude=.nought-data.json "$name.whole" "$name.killed"
  echo "$name: the same files after $kills kills"
}

run clean clean text.jsonl --rules gopher-repetition,gopher --pii redact
run dedup dedup clean.whole/*.jsonl --minhash --memory 256MiB
