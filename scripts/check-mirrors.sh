#!/usr/bin/env bash
# Holds that the test of a thing is found under its name: scripts/check-mirrors.sh [ROOT]
#
# src/nought/X/y.cpp, or y.h alone, is tested in tests/X/y_test.cpp; sources in folders below X too. What shares the
# test of a sibling stands in tests/mirrors.txt, one line each: SOURCE TEST REASON, paths without "src/nought/" and
# "tests/". One line per violation; exits with 1 if there is any.
set -euo pipefail
root=$(cd "${1:-$(dirname "${BASH_SOURCE[0]}")/..}" && pwd)
cd "$root"

violations=0
violation() {
  echo "$1: $2"
  violations=$((violations + 1))
}

# "kernels/cpu/softcap", once for its header and its source.
list_sources() {
  { if [[ -e .git ]] && git ls-files --cached --others --exclude-standard -- src/nought 2>/dev/null; then :; else
      find src/nought -type f; fi; } |
    { grep -E '\.(cpp|h)$' || true; } | sed -E 's#^src/nought/##; s#(-inl)?\.(cpp|h)$##' | LC_ALL=C sort -u
}

mirror_of() { echo "${1%%/*}/${1##*/}_test.cpp"; }

declare -A shared=()
while read -r source test reason; do
  [[ -z $source || $source == \#* ]] && continue
  shared[$source]=$test
  [[ -n $reason ]] || violation tests/mirrors.txt "$source has no reason"
  [[ -f tests/$test ]] || violation tests/mirrors.txt "$source is tested in tests/$test, which is not there"
  [[ -f tests/$(mirror_of "$source") ]] && violation tests/mirrors.txt "$source has tests/$(mirror_of "$source"): remove the line"
  compgen -G "src/nought/$source.*" >/dev/null || compgen -G "src/nought/$source-inl.h" >/dev/null ||
    violation tests/mirrors.txt "src/nought/$source is not there: remove the line"
done <tests/mirrors.txt

count=0
while read -r source; do
  count=$((count + 1))
  mirror=$(mirror_of "$source")
  [[ -f tests/$mirror || -n ${shared[$source]:-} ]] ||
    violation "src/nought/$source" "has no tests/$mirror; write it, or say in tests/mirrors.txt which test it shares"
done < <(list_sources)

if ((violations > 0)); then
  echo "check-mirrors: error: see the lines above" >&2
  exit 1
fi
echo "check-mirrors: the tests of $count sources are found under their names, ${#shared[@]} of them under a sibling's"
