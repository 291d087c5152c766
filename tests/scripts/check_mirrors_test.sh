#!/usr/bin/env bash
# check-mirrors.sh accepts a house whose tests are found and names each way to lose one: check_mirrors_test.sh SCRIPT
source "$(dirname "${BASH_SOURCE[0]}")/scaffold.sh"
script=$1

build_house() {
  rm -rf "$house/src" "$house/tests"
  mkdir -p "$house/src/nought/kernels/cpu" "$house/tests/kernels"
  touch "$house"/src/nought/kernels/{sums.h,work.h,work.cpp,cpu/sums.cpp,cpu/simd-inl.h}
  touch "$house"/tests/kernels/{sums,work}_test.cpp
  printf '# A list.\n\nkernels/cpu/simd  kernels/sums_test.cpp  vectors\n' >"$house/tests/mirrors.txt"
}

build_house
"$script" "$house" >/dev/null || fail "a house in order was refused"

build_house
touch "$house/src/nought/kernels/cpu/rope.cpp"
expect_violation 'src/nought/kernels/cpu/rope: has no tests/kernels/rope_test.cpp'

build_house
echo 'kernels/work  kernels/sums_test.cpp  small' >>"$house/tests/mirrors.txt"
expect_violation 'kernels/work has tests/kernels/work_test.cpp: remove the line'

build_house
rm "$house/src/nought/kernels/cpu/simd-inl.h"
expect_violation 'src/nought/kernels/cpu/simd is not there: remove the line'

build_house
echo 'kernels/cpu/simd  kernels/none_test.cpp  vectors' >"$house/tests/mirrors.txt"
expect_violation 'tests/kernels/none_test.cpp, which is not there'

build_house
echo 'kernels/cpu/simd  kernels/sums_test.cpp' >"$house/tests/mirrors.txt"
expect_violation 'kernels/cpu/simd has no reason'

echo "every violation is caught"
