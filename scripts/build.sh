#!/usr/bin/env bash
# Installs what is missing, then configures and builds a preset: scripts/build.sh [release|debug|clang|asan|tsan]
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
preset=${1:-release}

"$root/scripts/install-deps.sh"

# A compiler process takes up to about 1.5 GiB: no more of them than the memory holds.
jobs=$(nproc)
memory_jobs=$(awk '/^MemAvailable:/ { print int($2 / 1572864) }' /proc/meminfo)
if ((memory_jobs < jobs)); then jobs=$((memory_jobs > 0 ? memory_jobs : 1)); fi

cd "$root"
cmake --preset "$preset"
cmake --build --preset "$preset" --parallel "$jobs"
