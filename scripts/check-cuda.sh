#!/usr/bin/env bash
# Compiles the kernels of CUDA and what calls them, for one architecture: scripts/check-cuda.sh [ARCH]
#
# Without nvcc there is nothing to compile, and it says so. Warnings are errors. If the machine has a GPU, the program
# that tests them is built, too, and runs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
arch=${1:-90a-real}
if ! command -v nvcc >/dev/null && [[ ! -x /usr/local/cuda/bin/nvcc ]]; then
  echo "check-cuda: no nvcc on this machine: nothing to compile"
  exit 0
fi
jobs=${NOUGHT_JOBS:-$(nproc)}
cmake --preset release -B build/cuda -DNOUGHT_WERROR=ON -DNOUGHT_CUDA=ON -DNOUGHT_CUDA_ARCHITECTURES="$arch"
cmake --build build/cuda --parallel "$jobs" --target nought_cuda_backend nought_cuda_kernels
echo "check-cuda: the kernels compile for $arch"
if [[ -e /dev/nvidia0 ]]; then
  cmake --build build/cuda --parallel "$jobs" --target test_cuda_device
  build/cuda/bin/test_cuda_device --gtest_brief=1
fi
