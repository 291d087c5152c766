#!/usr/bin/env bash
# Runs clang-tidy with the checks of .clang-tidy: scripts/check-tidy.sh [--all | --since COMMIT | FILE...]
#
# Without arguments: the sources that differ from main. A changed header counts as the source of the same name.
# A source takes 5 to 20 seconds, so CI does not run this.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

fail() {
  echo "check-tidy: error: $*" >&2
  exit 1
}

# A clone of another branch has main as origin/main only.
main_branch() {
  if git rev-parse --verify --quiet 'main^{commit}' >/dev/null; then echo main; else echo origin/main; fi
}

changed_since() {
  git rev-parse --verify --quiet "$1^{commit}" >/dev/null || fail "no commit $1 here; name the files, or --all"
  git diff --name-only --diff-filter=d --merge-base "$1" -- '*.cpp' '*.h'
}

command -v clang-tidy-14 >/dev/null || fail "no clang-tidy-14 here; on Debian 12 scripts/install-deps.sh dev installs it"
case ${1:-} in
  --all) files=$(git ls-files -- '*.cpp') ;;
  --since) files=$(changed_since "${2:?--since takes a commit}") ;;
  -*) fail "unknown option $1; usage: scripts/check-tidy.sh [--all | --since COMMIT | FILE...]" ;;
  '') files=$(changed_since "$(main_branch)") ;;
  *) files=$(printf '%s\n' "$@") ;;
esac

"$root/scripts/configure-clang.sh"
sources=$(while read -r file; do
  source=${file%.h}
  source=${source%.cpp}.cpp
  if grep -qF "\"file\": \"$root/$source\"" build/clang-check/compile_commands.json; then echo "$source"; fi
done <<<"$files" | LC_ALL=C sort -u)
if [[ -z $sources ]]; then
  echo "check-tidy: no sources to check"
  exit 0
fi
tr '\n' '\0' <<<"$sources" | xargs -0 -P "$(nproc)" -n 1 clang-tidy-14 --quiet -p build/clang-check || fail "see the lines above"
echo "check-tidy: $(wc -l <<<"$sources") sources without a finding"
