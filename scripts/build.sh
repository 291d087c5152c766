#!/usr/bin/env bash
# Installs what is missing, then configures and builds a preset: scripts/build.sh [PRESET] [-D...]... [TARGET]...
#
# PRESET: release (the default), dev (fewer instruction sets and GPUs), debug, clang, asan or tsan. -D options go to cmake
# and stay in force in that build folder. Targets: everything unless some are named. The end says what took longest.
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

# A compiler process takes up to about 1.5 GiB, and 2 GiB for the sanitizers: no more of them than the memory holds.
jobs=$(nproc)
kib_of_compiler=1572864
if [[ $preset == asan ]]; then kib_of_compiler=2097152; fi
memory_jobs=$(awk -v each=$kib_of_compiler '/^MemAvailable:/ { print int($2 / each) }' /proc/meminfo)
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

# Says how much compiling this build took, and what took longest: lines of ninja's log from line $1 on, a step each.
print_longest() {
  tail -n "+$1" "build/$preset/.ninja_log" | LC_ALL=C sort -t '	' -k4,4 -u | awk -F '\t' '
    $2 > $1 && !/^#/ { sum += $2 - $1; ++steps; print $2 - $1, $4 }
    END { if (steps) print "sum", sum, steps }' | LC_ALL=C sort -rn | awk '
    $1 == "sum" { printf "build: %d steps took %d s of %d compilers", $3, $2 / 1000, jobs; next }
    ++shown <= 5 {
      sub(/\/CMakeFiles\//, "/", $2); sub(/_cxx\.cxx\.o$|\.o$/, "", $2)
      longest = longest (shown > 1 ? "," : "") sprintf(" %s %.0f s", $2, $1 / 1000)
    }
    END { if (shown) print "; longest:" longest }' jobs="$jobs"
}

echo "build: ${targets[*]} in build/$preset, $jobs at a time"
first=1
if [[ -f build/$preset/.ninja_log ]]; then first=$(($(wc -l <"build/$preset/.ninja_log") + 1)); fi
# Ninja prints one line per file where its output is no terminal.
cmake --build --preset "$preset" --parallel "$jobs" --target "${targets[@]}" 2>&1 | scripts/progress.sh build ||
  fail "the build stopped, for the reason above; run this again to go on, what is built stays"
[[ ! -f build/$preset/.ninja_log ]] || print_longest "$first"
