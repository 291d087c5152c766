#!/usr/bin/env bash
# Everything that continuous integration checks, on a bare Debian 12 machine: scripts/ci.sh [PART]...
#
# Each part is a script that anyone can run alone; with names, only these parts run. A part that fails does not keep the
# others from running, unless they need what it makes. The end shows every part with its time, then CTest's summary.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

parts=(install includes format build tests library cuda haswell sanitizers)
declare -A command=(
  [install]="scripts/install-deps.sh dev"
  [includes]="scripts/check-includes.sh"
  [format]="scripts/check-format.sh"
  [build]="scripts/build.sh release -DNOUGHT_WERROR=ON -DNOUGHT_CUDA=OFF" # the part cuda compiles that
  [tests]="scripts/test.sh release"
  [library]="scripts/check-library.sh"
  [cuda]="scripts/check-cuda.sh"
  [sanitizers]="scripts/check-sanitizers.sh"
  [haswell]="scripts/test-on.sh haswell"
)
# Limits of three times what a part takes on two quiet cores from a cold cache, which is 35 minutes for all of them: other
# machines are half as fast. Whoever calls this ends it after 90 minutes, so all parts together end before: then one that
# hangs is named.
declare -A minutes=([install]=6 [includes]=2 [format]=2 [build]=32 [tests]=24 [library]=8 [cuda]=18 [sanitizers]=40 [haswell]=6)
minutes_of_all=88
declare -A needs=([format]=install [build]=install [tests]=build [library]=build [cuda]=install [sanitizers]=install [haswell]=build)
declare -A result

for part in "$@"; do
  if [[ -z ${command[$part]:-} ]]; then
    echo "ci: error: no part $part; there are: ${parts[*]}" >&2
    exit 2
  fi
done
(($#)) && parts=("$@")

log=$(mktemp -d)
trap 'rm -rf "$log"' EXIT

run_part() {
  local part=$1 start=$SECONDS needed=${needs[$1]:-} status=0
  local limit=$((minutes[$part] * 60)) left=$((minutes_of_all * 60 - SECONDS))
  limit=$((limit < left ? limit : left))
  if [[ -n $needed && ${result[$needed]:-passed} != passed ]]; then
    result[$part]="not run, as $needed did not pass"
  elif ((limit <= 0)); then
    result[$part]="FAILED: not run, as the parts before took $minutes_of_all minutes"
  else
    echo "ci: $part: ${command[$part]}"
    # shellcheck disable=SC2086 # the words of the command
    timeout --kill-after=10 $limit ${command[$part]} </dev/null 2>&1 | tee "$log/$part" || status=$?
    case $status in
      0) result[$part]=passed ;;
      124 | 137) result[$part]="FAILED: stopped after $limit s" ;;
      *) result[$part]="FAILED with exit code $status" ;;
    esac
  fi
  printf '%-12s%6d s  %s\n' "$part" $((SECONDS - start)) "${result[$part]}" >>"$log/summary"
}

for part in "${parts[@]}"; do run_part "$part"; done

echo
failed=0
for part in "${parts[@]}"; do [[ ${result[$part]} == passed ]] || failed=1; done
if [[ -e $log/tests ]]; then
  sed -n '/% tests passed, .* tests failed out of /,$p' "$log/tests"
  echo
fi
cat "$log/summary" # last, as whoever shows the end of this alone wants the table
if ((failed)); then
  echo "ci: failed; see the table of parts above" >&2
  exit 1
fi
