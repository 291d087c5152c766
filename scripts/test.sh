#!/usr/bin/env bash
# Installs what is missing, builds a preset (default: release) and runs every test.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
preset=${1:-release}

"$root/scripts/check-includes.sh"
"$root/scripts/build.sh" "$preset"

cd "$root"
# Many more threads than cores run here: a thread that waits should sleep.
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}
timeout --kill-after=10 1500 ctest --preset "$preset" --parallel "$(nproc)" </dev/null
