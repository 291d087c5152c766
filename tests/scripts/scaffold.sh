# What the tests of this folder begin with: strict mode, $house, a folder that goes away with the test, and fail().
# shellcheck shell=bash
set -euo pipefail
house=$(mktemp -d)
trap 'rm -rf "$house"' EXIT

# fail TEXT...: ends the test.
fail() {
  echo "FAILED: $*" >&2
  exit 1
}

# expect_violation TEXT: $script on $house fails and prints exactly one line, which holds TEXT.
expect_violation() {
  local output
  if output=$("${script:?}" "$house" 2>/dev/null); then fail "not caught: $1"; fi
  [[ $output == *"$1"* ]] || fail "expected '$1', got '$output'"
  [[ $(wc -l <<<"$output") -eq 1 ]] || fail "expected one line, got '$output'"
}
