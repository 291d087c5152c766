#!/usr/bin/env bash
# Compiles the kernels of CUDA for one architecture, and the program that tests them on a GPU: scripts/check-cuda.sh [ARCH]
#
# Without nvcc there is nothing to compile, and it says so. Warnings are errors. If the machine has a GPU, the program
# runs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
arch=${1:-90a-real}
if ! command -v nvcc >/dev/null && [[ ! -x /usr/local/cuda/bin/nvcc ]]; then
  echo "check-cuda: no nvcc on this machine: nothing to compile"
  exit 0
fi
cmake --preset release -B build/cuda -DNOUGHT_WERROR=ON -DNOUGHT_CUDA=ON -DNOUGHT_CUDA_ARCHITECTURES="$arch"
cmake --build build/cuda --parallel "${NOUGHT_JOBS:-$(nproc)}" --target test_cuda_device
status=0
build/cuda/bin/test_cuda_device --gtest_brief=1 || status=$?
if ((status != 0 && status != 77)); then
  echo "check-cuda: error: the tests fail on the GPU of this machine" >&2
  exit 1
fi
echo "check-cuda: the kernels compile for $arch"
