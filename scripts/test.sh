#!/usr/bin/env bash
# Installs what is missing, builds a preset (default: release) and runs every test but the long ones (scripts/test-long.sh).
# The end shows what took longest; all of it is in build/PRESET/Testing/costs.txt.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
preset=${1:-release}

"$root/scripts/check-includes.sh"
# The small tests alone are what scripts/check-sanitizers.sh builds.
"$root/scripts/build.sh" "$preset" -DNOUGHT_SMALL_TESTS=OFF

cd "$root"
# Many more threads than cores run here: a thread that waits should sleep.
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}
status=0
timeout --kill-after=10 1500 ctest --preset "$preset" --parallel "$(nproc)" </dev/null || status=$?
scripts/test-costs.sh "build/$preset" 100000 >"build/$preset/Testing/costs.txt"
scripts/test-costs.sh "build/$preset"
exit "$status"
