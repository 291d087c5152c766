#!/usr/bin/env bash
# Lets clang++ read every source, without making code, and takes warnings for errors: scripts/check-clang.sh [PATH]...
#
# Paths of files or folders, as git shows them. With none, all sources are read, each once.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
"$root/scripts/configure-clang.sh"

# One shell command per source, from the lines of compile_commands.json that say how to compile it.
list_commands() {
  sed -n 's/^ *"command": "\(.*\)",$/\1/p' "$root/build/clang-check/compile_commands.json" |
    sed -e 's/\\\(.\)/\1/g' -e 's/^.*ccache //' -e 's/ -o [^ ]* -c / -fsyntax-only -Werror -c /' |
    awk '{ source = $0; sub(/^.* -c /, "", source) } !seen[source]++'
}

commands=$(list_commands)
if (($#)); then
  commands=$(for file in "$@"; do grep -F -- " -c $root/${file#"$root/"}" <<<"$commands"; done)
fi
cd "$root/build/clang-check"
tr '\n' '\0' <<<"$commands" | xargs -0 -P "$(nproc)" -n 1 bash -c || {
  echo "check-clang: error: see the lines above" >&2
  exit 1
}
echo "check-clang: clang++ reads $(wc -l <<<"$commands") sources without a warning"
