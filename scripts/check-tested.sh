#!/usr/bin/env bash
# Holds that every interface has a test: scripts/check-tested.sh [ROOT]
#
# A header of src/nought that another folder includes, or that nothing of src includes, is included by a file of tests/
# too, directly: its test names what it offers. What its own folder alone includes is an inside, which the tests of that
# folder's interfaces hold. One line per violation; exits with 1 if there is any.
set -euo pipefail
root=$(cd "${1:-$(dirname "${BASH_SOURCE[0]}")/..}" && pwd)
cd "$root"

# "FILE HEADER" of each include of a header of src/nought.
includes_of() {
  { grep -rEo '^[[:space:]]*#[[:space:]]*include[[:space:]]*["<]nought/[^">]+' "$@" --include='*.h' --include='*.cpp' \
    --include='*.cu' || true; } | sed -E 's#^([^:]+):.*["<](nought/.*)$#\1 \2#'
}

violations=$(
  {
    { if [[ -e .git ]] && git ls-files --cached --others --exclude-standard -- src/nought 2>/dev/null; then :; else
        find src/nought -type f; fi; } | { grep -E '\.h$' || true; } | sed 's#^src/#header #'
    includes_of src | sed 's#^src/#use #'
    includes_of tests | sed 's#^#test #'
  } | awk '
    function folder(path) { split(path, part, "/"); return part[2] }
    $1 == "header" { headers[$2] }
    $1 == "use" { if (folder($2) == folder($3)) inside[$3]; else interface[$3] }
    $1 == "test" { tested[$3] }
    END {
      for (header in headers)
        if (!(header in tested) && (header in interface || !(header in inside)))
          print "src/" header ": no test includes it; write one for what it offers"
    }' | LC_ALL=C sort
)
if [[ -n $violations ]]; then
  echo "$violations"
  echo "check-tested: error: see the lines above" >&2
  exit 1
fi
echo "check-tested: every interface of src/nought is included by a test"
