#!/usr/bin/env bash
# check-includes.sh accepts a house in order and names each way to break it: check_includes_test.sh SCRIPT
source "$(dirname "${BASH_SOURCE[0]}")/scaffold.sh"
script=$1

build_house() {
  rm -rf "$house/src"
  mkdir -p "$house/src/nought/base" "$house/src/nought/kernels/cpu" "$house/src/nought/train"
  echo 'set(NOUGHT_FOLDERS base kernels train)' >"$house/src/nought/CMakeLists.txt"
  echo '#include <vector>' >"$house/src/nought/base/error.h"
  echo '#include "nought/kernels/cpu/cpu.h"' >"$house/src/nought/kernels/kernels.cpp"
  printf '#include "nought/base/error.h"\n#include "nought/kernels/ops.h"\n' >"$house/src/nought/kernels/cpu/cpu.h"
  echo '  #  include "nought/kernels/ops.h"' >"$house/src/nought/train/trainer.cpp"
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

# config reaches an enum of tensor/, but no tensor, neither directly nor through another folder.
build_house_with_config() {
  build_house
  echo 'set(NOUGHT_FOLDERS base tensor kernels config train)' >"$house/src/nought/CMakeLists.txt"
  mkdir -p "$house/src/nought/tensor" "$house/src/nought/config"
  touch "$house/src/nought/tensor/dtype.h"
  echo '#include "nought/tensor/dtype.h"' >"$house/src/nought/tensor/tensor.h"
  echo '#include "nought/tensor/dtype.h"' >"$house/src/nought/config/plan.h"
  printf '#include "nought/config/plan.h"\n#include "nought/tensor/dtype.h"\n' >"$house/src/nought/config/plan.cpp"
}

rm -r "$house/docs"
build_house_with_config
"$script" "$house" >/dev/null || fail "a plain header of tensor/ was refused"

echo '#include "nought/tensor/tensor.h"' >>"$house/src/nought/config/plan.cpp"
expect_violation 'src/nought/config/plan.cpp: includes "nought/tensor/tensor.h", but config knows no tensors'

build_house_with_config
echo '#include "nought/tensor/tensor.h"' >"$house/src/nought/kernels/ops.h"
echo '#include "nought/kernels/ops.h"' >"$house/src/nought/base/options.h"
expect_violation 'base includes "nought/kernels/ops.h", but kernels stands below base'
mkdir "$house/src/nought/optim"
mv "$house/src/nought/base/options.h" "$house/src/nought/optim/options.h"
sed -i 's/kernels config/kernels optim config/' "$house/src/nought/CMakeLists.txt"
"$script" "$house" >/dev/null || fail "a folder that config does not reach was refused"
echo '#include "nought/optim/options.h"' >>"$house/src/nought/config/plan.cpp"
expect_violation 'src/nought/config/plan.cpp: includes "nought/kernels/ops.h" through "nought/optim/options.h", but config knows no tensors'

echo "every violation is caught"
