#!/usr/bin/env bash
# Everything that continuous integration checks, on a bare Debian 12 machine: scripts/ci.sh [PART]...
#
# Each part is a script that anyone can run alone; with names, only these parts run. A part that fails does not keep the
# others from running, unless they need what it makes. The end shows every part with its time, then CTest's summary.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

parts=(install includes format build tests cuda clang haswell sanitizers)
declare -A command=(
  [install]="scripts/install-deps.sh dev"
  [includes]="scripts/check-includes.sh"
  [format]="scripts/check-format.sh"
  [build]="scripts/build.sh release -DNOUGHT_WERROR=ON -DNOUGHT_CUDA=OFF" # the part cuda compiles that
  [tests]="scripts/test.sh release"
  [cuda]="scripts/check-cuda.sh"
  [sanitizers]="scripts/check-sanitizers.sh"
  [clang]="scripts/check-clang.sh src examples"
  [haswell]="scripts/test-on.sh haswell"
)
# Limits of twice what a part takes on two quiet cores from a cold cache, which is 35 minutes for all of them. The sum of the
# limits stays below 90 minutes, after which the whole run is ended: so a part that hangs is named.
declare -A minutes=([install]=4 [includes]=1 [format]=1 [build]=16 [tests]=15 [cuda]=6 [sanitizers]=20 [clang]=10 [haswell]=4)
declare -A needs=([format]=install [build]=install [tests]=build [cuda]=install [sanitizers]=install [clang]=install [haswell]=build)
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
  if [[ -n $needed && ${result[$needed]:-passed} != passed ]]; then
    result[$part]="not run, as $needed did not pass"
  else
    echo "ci: $part: ${command[$part]}"
    # shellcheck disable=SC2086 # the words of the command
    timeout --kill-after=10 $((minutes[$part] * 60)) ${command[$part]} </dev/null 2>&1 | tee "$log/$part" || status=$?
    case $status in
      0) result[$part]=passed ;;
      124 | 137) result[$part]="FAILED: stopped after ${minutes[$part]} minutes" ;;
      *) result[$part]="FAILED with exit code $status" ;;
    esac
  fi
  printf '%-12s%6d s  %s\n' "$part" $((SECONDS - start)) "${result[$part]}" >>"$log/summary"
}

for part in "${parts[@]}"; do run_part "$part"; done

echo
cat "$log/summary"
failed=0
for part in "${parts[@]}"; do [[ ${result[$part]} == passed ]] || failed=1; done
if [[ -e $log/tests ]]; then
  echo
  sed -n '/% tests passed, .* tests failed out of /,$p' "$log/tests"
fi
if ((failed)); then
  echo "ci: failed; see the table of parts above" >&2
  exit 1
fi
