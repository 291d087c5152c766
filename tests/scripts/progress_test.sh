#!/usr/bin/env bash
# progress.sh shows counts in few lines, without carriage returns in a file, and what is no progress whole:
# progress_test.sh SCRIPT
source "$(dirname "${BASH_SOURCE[0]}")/scaffold.sh"
progress=$1

# expect_lines EXPECTED LABEL [--quiet]: what it makes of standard input, without the time.
expect_lines() {
  local output
  output=$("$progress" "${@:2}" | sed -E 's/  [0-9]+m[0-9]{2}s$//' | paste -sd '|')
  [[ $output == "$1" ]] || fail "expected '$1', got '$output'"
}
ninja='[1/4] Building CXX object src/nought/cli/CMakeFiles/nought_cli.dir/Unity/unity_0_cxx.cxx.o\n'
printf "$ninja"'FAILED: a.o\nx.cpp:3: error: "[4/4] no"\n\n[3/4] Linking CXX static library a/libnought_io.a\nlast' |
  expect_lines 'FAILED: a.o|x.cpp:3: error: "[4/4] no"||last|build   3 of 4, 75%  libnought_io.a' build
printf 'Reading\ndlstatus:1:20.55:Retrieving file 1 of 5 (12s remaining)\nSetting up g++\npmstatus:g++:33.1:Installing g++ (amd64)\n' |
  expect_lines 'install unpack 33%  Installing g++ (amd64)' install --quiet
expect_lines '' build </dev/null
