#!/usr/bin/env bash
# Holds the C++ files to .clang-format: scripts/check-format.sh [--fix] [ROOT]
#
# Names every file that clang-format 14 (Debian 12's) would change and exits with 1 if there is any; --fix changes them.
set -euo pipefail
fix=0
if [[ ${1:-} == --fix ]]; then
  fix=1
  shift
fi
root=$(cd "${1:-$(dirname "${BASH_SOURCE[0]}")/..}" && pwd)
cd "$root"

clang_format=$(command -v clang-format-14 || command -v clang-format || true)
if [[ -z $clang_format || $("$clang_format" --version) != *"version 14."* ]]; then
  echo "check-format: error: no clang-format 14 here, and others break lines elsewhere;" \
    "on Debian 12 scripts/install-deps.sh dev installs it" >&2
  exit 1
fi

# Tracked files; all of them where there is no repository (a release archive).
list_sources() {
  if [[ -e .git ]] && git ls-files -z -- '*.cpp' '*.h' '*.cu' 2>/dev/null; then return; fi
  find . \( -path './build*' -o -path ./.git \) -prune -o \( -name '*.cpp' -o -name '*.h' -o -name '*.cu' \) -type f -print0
}
mapfile -d '' -t files < <(list_sources | LC_ALL=C sort -z)
if [[ ${#files[@]} -eq 0 ]]; then
  echo "check-format: error: no C++ files below $root" >&2
  exit 1
fi

if ((fix)); then
  "$clang_format" -i --style=file -- "${files[@]}"
  exit
fi

# One "FILE:LINE:COLUMN: error: code should be clang-formatted" for each place that would change.
complaints=$("$clang_format" --dry-run -Werror --style=file -- "${files[@]}" 2>&1 >/dev/null) && {
  echo "check-format: ${#files[@]} files are formatted"
  exit 0
}
wrong=$(sed -n 's/^\(.*\):[0-9]*:[0-9]*: error: code should be clang-formatted.*/\1/p' <<<"$complaints" | LC_ALL=C sort -u)
if [[ -z $wrong ]]; then
  echo "$complaints" >&2
  exit 1
fi
echo "$wrong"
echo "check-format: error: $(wc -l <<<"$wrong") files are not formatted; scripts/check-format.sh --fix formats them" >&2
exit 1
