#!/usr/bin/env bash
# Writes build/clang-check/compile_commands.json, which says how clang++ would compile every source, the libFuzzer
# programs included. check-clang.sh and check-tidy.sh read it; nothing is compiled.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

if ! command -v clang++ >/dev/null; then
  echo "configure-clang: error: no clang++ here; on Debian 12 scripts/install-deps.sh dev installs it" >&2
  exit 1
fi
# Each file is compiled alone and without precompiled headers, so that every file must include what it uses.
cmake --preset clang -B build/clang-check -D NOUGHT_FUZZ=ON -D NOUGHT_UNITY=OFF -D CMAKE_DISABLE_PRECOMPILE_HEADERS=ON >/dev/null
cmake --build build/clang-check --target nought_version >/dev/null # a source that every build writes
