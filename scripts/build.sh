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

fail() {
  echo "build: error: $*" >&2
  exit 1
}

cd "$root"
# What configuring says matters when it fails or warns.
configured=$(cmake --preset "$preset" "${options[@]}" 2>&1) || {
  printf '%s\n' "$configured" >&2
  fail "cmake could not configure build/$preset, for the reason above; if it is stale, remove it and run this again"
}
sed -n 's/^-- \(CUDA: .*\)/build: \1/p' <<<"$configured"
[[ $configured != *'CMake Warning'* ]] || printf '%s\n' "$configured" >&2

echo "build: ${targets[*]} in build/$preset, $jobs at a time"
# Ninja prints one line per file where its output is no terminal.
cmake --build --preset "$preset" --parallel "$jobs" --target "${targets[@]}" 2>&1 | scripts/progress.sh build ||
  fail "the build stopped, for the reason above; run this again to go on, what is built stays"
