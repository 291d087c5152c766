#!/usr/bin/env bash
# Makes the tests of CUDA a folder that runs on a machine with a GPU: scripts/package-cuda.sh [FOLDER [ARCH]]
#
# FOLDER, by default build/test_cuda, has nought, its tests of CUDA, the libraries that they were linked with, the golden
# files, and gpu-check.sh. FOLDER.tar.gz is the same to copy. The other machine needs the driver, cuBLASLt and a glibc as
# new as this one's:
#
#   tar xzf test_cuda.tar.gz && test_cuda/gpu-check.sh --out gpu-check
#
# run.sh runs all tests and nothing else.
#
# ARCH is what kernels are compiled for: "80-real;90a-real;80-virtual" unless said.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
folder=${1:-build/test_cuda}
arch=${2:-80-real;90a-real;80-virtual}
most=$((48 * 1024 * 1024))

cmake --preset release -B build/cuda -DNOUGHT_WERROR=ON -DNOUGHT_CUDA=ON -DNOUGHT_CUDA_ARCHITECTURES="$arch"
cmake --build build/cuda --parallel "${NOUGHT_JOBS:-$(nproc)}" --target test_cuda_device nought

rm -rf "$folder"
mkdir -p "$folder/lib" "$folder/golden"
cp build/cuda/bin/test_cuda_device "$folder/test_cuda"
cp build/cuda/bin/nought scripts/gpu-check.sh "$folder/"
strip "$folder/test_cuda" "$folder/nought"
cp -r tests/golden/open "$folder/golden/"
mkdir "$folder/docs" "$folder/examples"
cp docs/*.md "$folder/docs/"
cp examples/quickstart.json "$folder/examples/"
cp -r bench "$folder/"
# All but the C library and the loader, which go with the machine.
ldd "$folder/test_cuda" "$folder/nought" | awk '$3 ~ /^\// {print $3}' |
  { grep -Ev '/(libc|libm|libdl|librt|libpthread|libresolv)\.so' || true; } |
  sort -u | xargs -r cp -L -t "$folder/lib"
cat >"$folder/run.sh" <<'END'
#!/bin/sh
# All parts, one behind the other: run.sh [OPTIONS OF test_cuda]. A part that something else has ended is gone on with, and
# its last test has failed. Run again, it goes on from the file `done` in this folder, too.
here=$(cd "$(dirname "$0")" && pwd)
export LD_LIBRARY_PATH="$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
part=0
while [ "$part" -lt 40 ]; do
  "$here/test_cuda" --record "$here/done" "$@"
  code=$?
  [ "$code" -eq 75 ] || [ "$code" -gt 127 ] || exit "$code"
  part=$((part + 1))
done
exit 1
END
cat >"$folder/with-libraries" <<'END'
#!/bin/sh
# nought with the libraries that it was linked with: other programs beside it keep their own.
here=$(cd "$(dirname "$0")" && pwd)
LD_LIBRARY_PATH="$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" exec "$here/nought" "$@"
END
chmod +x "$folder/run.sh" "$folder/with-libraries"
if ! env -i LD_LIBRARY_PATH="$folder/lib" "$folder/test_cuda" --gtest_list_tests >/dev/null; then
  echo "package-cuda: error: the program does not start: see above" >&2
  exit 1
fi

tar -czf "$folder.tar.gz" -C "$(dirname "$folder")" "$(basename "$folder")"
size=$(stat -c %s "$folder.tar.gz")
if ((size > most)); then
  echo "package-cuda: error: $folder.tar.gz has $size bytes, more than $most" >&2
  exit 1
fi
echo "package-cuda: $folder.tar.gz, $((size / 1024)) KiB"
