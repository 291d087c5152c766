#!/usr/bin/env bash
# Holds the order of the house: scripts/check-includes.sh [ROOT]
#
# A file in src/nought/Y may include "nought/X/..." only if X is Y or stands above it in NOUGHT_FOLDERS of
# src/nought/CMakeLists.txt. config knows no tensors: of tensor/ and kernels/ it reaches only the headers of `plain`, even
# through other headers. No file of src has more than 450 lines. The table of docs/design.md lists the folders in this
# order. One line per violation; exits with 1 if there is any.
set -euo pipefail
root=$(cd "${1:-$(dirname "${BASH_SOURCE[0]}")/..}" && pwd)
cd "$root"

folders=$(sed -n 's/^set(NOUGHT_FOLDERS \(.*\))$/\1/p' src/nought/CMakeLists.txt)
if [[ -z $folders ]]; then
  echo "check-includes: error: src/nought/CMakeLists.txt has no line set(NOUGHT_FOLDERS ...)" >&2
  exit 1
fi

# Enums, their names, and what a CPU has: no storage, no operation.
plain="nought/tensor/dtype.h nought/tensor/pool.h nought/kernels/code_kind.h nought/kernels/isa.h"

described=$folders
if [[ -e docs/design.md ]]; then described=$(sed -n 's/^| `\([a-z]*\)` |.*/\1/p' docs/design.md | paste -sd ' '); fi
if [[ $described != "$folders" ]]; then
  echo "docs/design.md: its table lists \"$described\", NOUGHT_FOLDERS is \"$folders\""
  echo "check-includes: error: see the line above" >&2
  exit 1
fi

# Tracked files; all of them where there is no repository (a release archive).
list_sources() {
  if [[ -e .git ]] && git ls-files -- src 2>/dev/null; then return; fi
  find src -type f
}

list_sources | LC_ALL=C sort | { grep -E '\.(h|hpp|cpp|cc|cu|cuh|inl|txt|cmake)$' || true; } |
  LC_ALL=C awk -v folders="$folders" -v plain="$plain" '
    BEGIN {
      count = split(folders, name, " ")
      for (i = 1; i <= count; ++i) level[name[i]] = i
      count = split(plain, name, " ")
      for (i = 1; i <= count; ++i) is_plain[name[i]] = 1
      kMaxLines = 450
    }
    function violation(where, what) {
      print where ": " what
      ++violations
    }
    function check_include(file, folder, line, number,    target, path, part) {
      target = line
      sub(/^[ \t]*#[ \t]*include[ \t]*[<"]/, "", target)
      sub(/[>"].*$/, "", target)
      if (target ~ /^\.\.?\//) {
        violation(file ":" number, "includes \"" target "\"; write the path from src: \"nought/...\"")
        return
      }
      if (target !~ /^nought\//) return
      includes[file] = includes[file] " " target
      split(target, part, "/")
      if (!(part[2] in level))
        violation(file ":" number, "includes \"" target "\", but " part[2] " is no folder of NOUGHT_FOLDERS")
      else if (level[part[2]] > level[folder])
        violation(file ":" number, folder " includes \"" target "\", but " part[2] " stands below " folder)
    }
    # Walks the includes of a file of config, and theirs. `seen` is made anew for each.
    function check_no_tensors(file,    queue, at, end, from, target, targets, count, i, seen, through) {
      queue[1] = file
      end = 1
      for (at = 1; at <= end; ++at) {
        from = queue[at]
        count = split(includes[from], targets, " ")
        for (i = 1; i <= count; ++i) {
          target = targets[i]
          if (target in seen) continue
          seen[target]
          if (target ~ /^nought\/(tensor|kernels)\// && !(target in is_plain)) {
            through = from == file ? "" : " through \"" substr(from, 5) "\""
            violation(file, "includes \"" target "\"" through ", but config knows no tensors; check-includes.sh lists what it may")
          } else {
            queue[++end] = "src/" target
          }
        }
      }
    }
    function check_file(file,    lines, line, folder, part) {
      split(file, part, "/")
      folder = part[3]
      if (part[2] != "nought" || (part[4] != "" && !(folder in level))) {
        violation(file, "lies outside of the folders of NOUGHT_FOLDERS")
        return
      }
      lines = 0
      while ((getline line < file) > 0) {
        ++lines
        if (line ~ /^[ \t]*#[ \t]*include[ \t]*[<"]/) check_include(file, folder, line, lines)
      }
      close(file)
      if (lines > kMaxLines) violation(file, "has " lines " lines; the limit is " kMaxLines ", split it by job")
      if (folder == "config") config[file]
      ++files
    }
    { check_file($0) }
    END {
      for (file in config) check_no_tensors(file)
      if (violations) exit 1
      print "check-includes: " files + 0 " files keep the order of the house"
    }' || {
  echo "check-includes: error: see the lines above" >&2
  exit 1
}
