#!/usr/bin/env bash
# Prints what the last run of CTest in a build folder took: scripts/test-costs.sh [BUILD_DIR [LINES]]
#
# Seconds of processes by program, then the slowest LINES (default 12) suites and single tests. Entries that ran two at a
# time count twice what the clock did. scripts/test.sh prints it at its end and keeps all of it in BUILD_DIR/Testing/costs.txt.
set -euo pipefail
build=${1:-$(dirname "${BASH_SOURCE[0]}")/../build/release}
lines=${2:-12}
log=$build/Testing/Temporary/LastTest.log
if [[ ! -e $log ]]; then
  echo "test-costs: error: $log is not there: run the tests first" >&2
  exit 1
fi

# KIND SECONDS TESTS NAME: an entry "zero/Reducer.medium_1" belongs to the suite zero/Reducer, and that to the program zero.
costs=$(awk '
  /^[0-9]+\/[0-9]+ Test: / { name = $3; folder = name; sub(/\/.*/, "", folder); suite = name; sub(/\..*/, "", suite) }
  /^\[ +(OK|FAILED|SKIPPED) +\] .* \([0-9]+ ms\)$/ {
    match($0, /\] [^ ,]+/); test = substr($0, RSTART + 2, RLENGTH - 2)
    ms = $(NF - 1); sub(/\(/, "", ms)
    printf "test %.2f 1 %s/%s\n", ms / 1000, folder, test
    tests[folder]++; suite_tests[suite]++; within++
  }
  /^Test time = / {
    seconds[folder] += $4; suite_seconds[suite] += $4; all += $4
    if (!within) { tests[folder]++; suite_tests[suite]++ }
    within = 0
  }
  END {
    for (folder in seconds) { printf "program %.2f %d %s\n", seconds[folder], tests[folder], folder; total += tests[folder] }
    for (suite in suite_seconds) printf "suite %.2f %d %s\n", suite_seconds[suite], suite_tests[suite], suite
    printf "all %.2f %d everything\n", all, total
  }' "$log")

table() {
  echo
  printf '%10s %6s  %s\n' seconds tests "$2"
  { grep "^$1 " <<<"$costs" || true; } | LC_ALL=C sort -k2,2nr -k4 | awk -v most="$3" 'NR <= most { printf "%10.2f %6d  %s\n", $2, $3, $4 }'
}

table program program 1000
table all "" 1 | tail -n 1
table suite suite "$lines"
table test test "$lines"
