#!/usr/bin/env bash
# Installs what is missing, then configures and builds a preset: scripts/build.sh [PRESET] [-D...]... [TARGET]...
#
# PRESET: release (the default), debug, clang, asan or tsan. -D options go to cmake and stay in force in that build folder.
# Targets: everything unless some are named.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
preset=${1:-release}
shift || true
options=() targets=()
for argument in "$@"; do
  if [[ $argument == -D* ]]; then options+=("$argument"); else targets+=("$argument"); fi
done
((${#targets[@]})) || targets=(all)

"$root/scripts/install-deps.sh"

# A compiler process takes up to about 1.5 GiB: no more of them than the memory holds.
jobs=$(nproc)
memory_jobs=$(awk '/^MemAvailable:/ { print int($2 / 1572864) }' /proc/meminfo)
if ((memory_jobs < jobs)); then jobs=$((memory_jobs > 0 ? memory_jobs : 1)); fi

cd "$root"
cmake --preset "$preset" "${options[@]}"
cmake --build --preset "$preset" --parallel "$jobs" --target "${targets[@]}"
