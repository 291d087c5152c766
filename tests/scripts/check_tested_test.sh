#!/usr/bin/env bash
# check-tested.sh accepts a house whose interfaces are tested and names one that is not: check_tested_test.sh SCRIPT
source "$(dirname "${BASH_SOURCE[0]}")/scaffold.sh"
script=$1

build_house() {
  rm -rf "$house/src" "$house/tests"
  mkdir -p "$house/src/nought/kernels/cpu" "$house/src/nought/train" "$house/tests/kernels"
  touch "$house"/src/nought/kernels/{sums.h,work.h} "$house/src/nought/kernels/cpu/simd-inl.h"
  printf '#include "nought/kernels/sums.h"\n#include "nought/kernels/cpu/simd-inl.h"\n' >"$house/src/nought/kernels/sums.cpp"
  echo '#include "nought/kernels/sums.h"' >"$house/src/nought/train/trainer.cpp"
  printf '#include "nought/kernels/sums.h"\n  #  include <nought/kernels/work.h>\n' >"$house/tests/kernels/sums_test.cpp"
}

build_house
"$script" "$house" >/dev/null || fail "a house in order was refused"

build_house
echo '#include "nought/kernels/cpu/simd-inl.h"' >>"$house/src/nought/train/trainer.cpp"
expect_violation 'src/nought/kernels/cpu/simd-inl.h: no test includes it' # another folder does

build_house
touch "$house/src/nought/train/spare.h"
expect_violation 'src/nought/train/spare.h: no test includes it' # nobody does

build_house
echo '// #include "nought/kernels/sums.h"' >"$house/tests/kernels/sums_test.cpp"
echo '#include "nought/kernels/work.h"' >>"$house/tests/kernels/sums_test.cpp"
expect_violation 'src/nought/kernels/sums.h: no test includes it' # in a comment alone

echo "every violation is caught"
