#!/usr/bin/env bash
# ci.sh runs every part, goes on after a failure, leaves out what needs a part that failed, and ends with a table of them:
# ci_test.sh SCRIPT
source "$(dirname "${BASH_SOURCE[0]}")/scaffold.sh"
mkdir "$house/scripts"
cp "$1" "$house/scripts/ci.sh"

# part_does SCRIPT COMMANDS: the stand-in for a part's script.
part_does() {
  printf '#!/bin/sh\necho "$(basename "$0") $*" >>"%s/ran"\n%s\n' "$house" "$2" >"$house/scripts/$1"
  chmod +x "$house/scripts/$1"
}

# expect_run CODE RAN [PART]...: ci.sh ends with this exit code after running these commands.
expect_run() {
  local code=$1 ran=$2 status=0
  shift 2
  : >"$house/ran"
  "$house/scripts/ci.sh" "$@" >"$house/out" 2>&1 || status=$?
  [[ $status -eq $code ]] || fail "exit code $status, expected $code: $(<"$house/out")"
  [[ $(paste -sd '|' "$house/ran") == "$ran" ]] || fail "ran $(paste -sd '|' "$house/ran"), expected $ran"
}

expect_shown() { grep -Eq -- "$1" "$house/out" || fail "not shown: $1 in $(<"$house/out")"; }

for script in install-deps.sh check-includes.sh check-format.sh build.sh check-sanitizers.sh check-library.sh check-cuda.sh test-on.sh; do
  part_does "$script" ''
done
part_does test.sh 'printf "1/2 Test passed\n\n100%% tests passed, 0 tests failed out of 2\n\nTotal Test time (real) = 1 sec\n"'

before='install-deps.sh dev|check-includes.sh |check-format.sh |build.sh release -DNOUGHT_WERROR=ON -DNOUGHT_CUDA=OFF'
expect_run 0 "$before|test.sh release|check-library.sh |check-cuda.sh |test-on.sh haswell|check-sanitizers.sh "
expect_shown '^install +[0-9]+ s  passed$'
expect_shown '^100% tests passed, 0 tests failed out of 2$'
[[ $(tail -n 1 "$house/out") =~ ^sanitizers\ .*\ passed$ ]] || fail "the table of parts is not at the end: $(<"$house/out")"

part_does build.sh 'exit 3'
expect_run 1 "$before|check-cuda.sh |check-sanitizers.sh "
expect_shown '^build .*FAILED with exit code 3$'
expect_shown '^tests .*not run, as build did not pass$'
expect_shown '^haswell .*not run, as build did not pass$'
[[ $(tail -n 1 "$house/out") == 'ci: failed'* ]] || fail "the last line does not say that it failed: $(<"$house/out")"

expect_run 0 'check-sanitizers.sh |test.sh release' sanitizers tests
part_does test.sh 'printf "50%% tests passed, 1 tests failed out of 2\nThe following tests FAILED:\n"; exit 8'
expect_run 1 'test.sh release' tests
expect_shown '^The following tests FAILED:$'
expect_run 2 '' tsets

all=$(sed -n 's/^minutes_of_all=\([0-9]*\)$/\1/p' "$house/scripts/ci.sh")
[[ -n $all && $all -lt 90 ]] || fail "all parts together may take ${all:-no} minutes: a run has 90"
sed -i 's/^minutes_of_all=.*/minutes_of_all=0/' "$house/scripts/ci.sh"
expect_run 1 '' tests
expect_shown '^tests .*not run, as the parts before took 0 minutes$'

echo "every part is run and reported"
