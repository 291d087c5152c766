#!/usr/bin/env bash
# Builds programs against the installed package, as users do: scripts/check-library.sh
#
# Installs build/release (or LIBRARY_BUILD) into an empty prefix. Every public header compiles, and no other one lies beside
# them; tests/install/consumer and all programs of examples/ build by g++ with CMake and by clang++ with pkg-config, without
# a warning, and run. Exit code 0 if everything holds.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=${LIBRARY_BUILD:-build/release}
work=$PWD/build/library
export OMP_NUM_THREADS=1

fail() {
  echo "check-library: error: $*" >&2
  exit 1
}

rm -rf "$work"
mkdir -p "$work"
cmake --install "$build" --prefix "$work/prefix" >"$work/install.log" || fail "cmake --install failed: build everything first"
include=$work/prefix/include
difference=$(diff <(cd "$include/nought" && find . -name '*.h' | sed 's|^\./||' | LC_ALL=C sort) <(LC_ALL=C sort cmake/public_headers.txt)) ||
  fail "$include/nought has other headers than cmake/public_headers.txt: $difference"

# In their alphabetical order, so that none needs what another one includes by chance before it.
sed 's|.*|#include <nought/&>|' cmake/public_headers.txt >"$work/all.cpp"
echo 'int main() {}' >>"$work/all.cpp"

run_programs() {
  local bin=$1 how=$2
  "$bin/consumer" || fail "$how: consumer failed"
  "$bin/custom_model" >"$work/log" || fail "$how: custom_model failed"
  "$bin/custom_collective" >"$work/log" || fail "$how: custom_collective failed"
  rm -rf "$work/out" "$work/run"
  "$bin/training_loop" examples/bytes_model/config.json examples/generate.cpp "$work/out" 40 >"$work/log" ||
    fail "$how: training_loop failed"
  [[ $("$bin/generate" "$work/out" '#include' 8) ]] || fail "$how: generate wrote nothing"
  "$bin/custom_optimizer" examples/quickstart.json data.files='["examples/generate.cpp"]' data.seq_length=32 training.max_steps=2 \
    training.save_steps=0 training.bf16=false deepspeed.bf16.enabled=false model.num_hidden_layers=1 \
    training.output_dir="$work/run" >"$work/log" || fail "$how: custom_optimizer failed"
}

warnings="-Wall -Wextra -Wpedantic -Werror"
launcher=$(command -v ccache || true)
cmake -S tests/install/consumer -B "$work/cmake" -G Ninja -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_CXX_COMPILER=g++ \
  -DEXAMPLES="$PWD/examples" -DCMAKE_CXX_FLAGS="$warnings" -DCMAKE_CXX_COMPILER_LAUNCHER="$launcher" >"$work/log" ||
  fail "CMake does not find the package: $(tail -5 "$work/log")"
cmake --build "$work/cmake" >"$work/log" || fail "g++ and CMake: $(grep -m1 error "$work/log")"
run_programs "$work/cmake" "g++ and CMake"
echo "check-library: programs of examples/ build by g++ with CMake, and run"

export PKG_CONFIG_PATH
PKG_CONFIG_PATH=$(dirname "$(find "$work/prefix" -name nought.pc)")
read -ra flags <<<"$warnings $(pkg-config --cflags nought)"
read -ra libraries <<<"$(pkg-config --libs nought)"
clang++ "${flags[@]}" -fsyntax-only "$work/all.cpp" || fail "clang++ and pkg-config: the public headers"
mkdir "$work/clang"
for program in tests/install/consumer/main.cpp examples/*.cpp; do
  name=$(basename "$program" .cpp)
  clang++ "${flags[@]}" "$program" -o "$work/clang/${name/main/consumer}" "${libraries[@]}" || fail "clang++ and pkg-config: $program"
done
run_programs "$work/clang" "clang++ and pkg-config"
echo "check-library: and by clang++ with pkg-config; $(wc -l <cmake/public_headers.txt) public headers"
