#!/usr/bin/env bash
# Compiles the kernels of CUDA and what calls them, for one architecture: scripts/check-cuda.sh [ARCH]
# Lists what nvcc made of each kernel: scripts/check-cuda.sh --table [ARCH]...   (default: 80 90a)
#
# Without nvcc there is nothing to compile, and it says so. Warnings are errors. If the machine has a GPU, the program
# that tests them is built, too, and runs.
#
# The table has a line per kernel and architecture: registers, spills, stack and shared memory by ptxas, occupancy by
# formula, and the instructions of tensor cores and of asynchronous copies by nvdisasm or cuobjdump, in the PATH or beside
# nvcc. Without these both columns are of the PTX. Spills of attention and kernels for tensor cores that do without are
# defects: they are named at the end, and the exit code is 1. It takes no GPU, and two minutes of a core.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if ! nvcc=$(command -v nvcc || command -v /usr/local/cuda/bin/nvcc); then
  echo "check-cuda: no nvcc on this machine: nothing to compile"
  exit 0
fi
jobs=${NOUGHT_JOBS:-$(nproc)}

configure() {
  cmake --preset release -B build/cuda -DNOUGHT_WERROR=ON -DNOUGHT_CUDA=ON -DNOUGHT_CUDA_ARCHITECTURES="$1"
}

# compile_alone FOLDER ARCH DISASSEMBLER COMMAND: FOLDER/ARCH/FILE.{log,ptx,sass} of a command of compile_commands.json.
compile_alone() {
  local command=$4 source folder
  source=$(sed 's/.* -c \([^ ]*\).*/\1/' <<<"$command")
  folder=$1/$2/$(basename "$source" .cu)
  mkdir -p "$folder"
  command=$(sed -E 's/ --generate-code=[^ ]*//g; s/ -x cu -c / /; s/ -o [^ ]*//' <<<"$command")
  if ! bash -c "$command -arch=sm_$2 -cubin -Xptxas -v --keep --keep-dir '$folder' -o '$folder/kernels.cubin'" \
    >"$folder.log" 2>&1; then
    cat "$folder.log" >&2
    return 1
  fi
  mv "$folder/$(basename "$source" .cu).ptx" "$folder.ptx"
  case $3 in
    *nvdisasm) "$3" "$folder/kernels.cubin" ;;
    *cuobjdump) "$3" -sass "$folder/kernels.cubin" ;;
  esac >"$folder.sass" 2>"$folder/disassembler.log" || rm "$folder.sass"
  [[ -s $folder.sass ]] || rm -f "$folder.sass"
  rm -r "$folder"
}

table() {
  local folder=build/cuda/table disassembler tool where
  (($#)) || set -- 80 90a
  configure 90a-real >/dev/null
  disassembler=none
  for tool in cuobjdump nvdisasm; do
    where=$(command -v "$tool" || command -v "$(dirname "$nvcc")/$tool") && disassembler=$where
  done
  rm -rf "$folder"
  export -f compile_alone
  local arch
  for arch in "${@%-real}"; do
    sed -n 's/^ *"command": "\(.*-x cu.*\)",$/\1/p' build/cuda/compile_commands.json |
      awk -v prefix="$PWD/$folder|$arch|$disassembler|" '{ print prefix $0 }'
  done | tr '\n' '\0' | xargs -0 -P "$jobs" -n 1 bash -c 'IFS="|" read -r -a words <<<"$0"; compile_alone "${words[@]}"' || {
    echo "check-cuda: error: see the lines above" >&2
    exit 1
  }
  perl scripts/kernel-table.pl "$folder"
}

if [[ ${1:-} == --table ]]; then
  shift
  table "$@"
  exit
fi
configure "${1:-90a-real}"
cmake --build build/cuda --parallel "$jobs" --target nought_cuda_backend nought_cuda_kernels
echo "check-cuda: the kernels compile for ${1:-90a-real}"
if [[ -e /dev/nvidia0 ]]; then
  cmake --build build/cuda --parallel "$jobs" --target test_cuda_device
  build/cuda/bin/test_cuda_device --gtest_brief=1
fi
