#!/usr/bin/env bash
# check-includes.sh accepts a house in order and names each way to break it: check_includes_test.sh SCRIPT
set -euo pipefail
script=$1
house=$(mktemp -d)
trap 'rm -rf "$house"' EXIT

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

build_house() {
  rm -rf "$house/src"
  mkdir -p "$house/src/nought/base" "$house/src/nought/kernels/cpu" "$house/src/nought/train"
  echo 'set(NOUGHT_FOLDERS base kernels train)' >"$house/src/nought/CMakeLists.txt"
  echo '#include <vector>' >"$house/src/nought/base/error.h"
  echo '#include "nought/kernels/cpu/cpu.h"' >"$house/src/nought/kernels/kernels.cpp"
  printf '#include "nought/base/error.h"\n#include "nought/kernels/ops.h"\n' >"$house/src/nought/kernels/cpu/cpu.h"
  echo '  #  include "nought/kernels/ops.h"' >"$house/src/nought/train/trainer.cpp"
}

# expect_violation TEXT: the script fails and prints exactly one violation, which holds TEXT.
expect_violation() {
  local output
  if output=$("$script" "$house" 2>/dev/null); then fail "not caught: $1"; fi
  [[ $output == *"$1"* ]] || fail "expected '$1', got '$output'"
  [[ $(wc -l <<<"$output") -eq 1 ]] || fail "expected one line, got '$output'"
}

build_house
"$script" "$house" >/dev/null || fail "a house in order was refused"

build_house
echo '#include "nought/train/trainer.h"' >>"$house/src/nought/base/error.h"
expect_violation 'src/nought/base/error.h:2: base includes "nought/train/trainer.h", but train stands below base'

build_house
echo '  #  include <nought/train/trainer.h> // why not' >>"$house/src/nought/kernels/cpu/cpu.h"
expect_violation 'src/nought/kernels/cpu/cpu.h:3: kernels includes "nought/train/trainer.h"'

build_house
echo '#include "nought/attic/box.h"' >>"$house/src/nought/train/trainer.cpp"
expect_violation 'attic is no folder of NOUGHT_FOLDERS'

build_house
echo '#include "../train/trainer.h"' >>"$house/src/nought/base/error.h"
expect_violation 'includes "../train/trainer.h"; write the path from src'

build_house
mkdir "$house/src/nought/attic"
echo '#include <vector>' >"$house/src/nought/attic/box.h"
expect_violation 'src/nought/attic/box.h: lies outside of the folders'

build_house
seq -f '// %g' 450 >"$house/src/nought/train/long.h"
"$script" "$house" >/dev/null || fail "450 lines were refused"
echo '// one more' >>"$house/src/nought/train/long.h"
expect_violation 'src/nought/train/long.h: has 451 lines; the limit is 450'

build_house
mkdir "$house/docs"
printf '| folder | its job |\n| --- | --- |\n| `base` | errors |\n| `train` | runs |\n' >"$house/docs/design.md"
expect_violation 'its table lists "base train", NOUGHT_FOLDERS is "base kernels train"'

echo "every violation is caught"
