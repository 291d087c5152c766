#!/usr/bin/env bash
# gpu-check.sh on the emulated GPU: gpu_check_test.sh GPU_CHECK BIN. It runs to its end, says what it cannot do there, and
# names the first test that failed.
set -euo pipefail
check=$1 bin=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

fail() {
  echo "gpu_check_test: $1" >&2
  cat "$folder/lines" >&2
  exit 1
}
has() { grep -Eq -- "$1" "$2" || fail "$2 has no line with: $1"; }

NOUGHT_BIN=$bin "$check" --emulated --out "$folder/out" >"$folder/lines" 2>&1 || fail "a run that should pass failed"
for part in info products attention streams memory models wire training ledger; do has "^$part +passed" "$folder/lines"; done
has '^ledger .* 4 of 4 categories as planned' "$folder/lines"
has '^speed +skipped .*emulated' "$folder/lines"
has '^gpu-check: 0 failed' "$folder/lines"
has '^\| training \| passed' "$folder/out/summary.md"

# A program of tests in which one fails: its name is told, and the exit code says so.
mkdir "$folder/bin"
ln -s "$bin/nought_emulated" "$folder/bin/nought_emulated"
cat >"$folder/bin/test_cuda" <<'END'
#!/usr/bin/env bash
[[ $1 == --record ]] || exit 2
printf 'began Some.test\npassed Some.test 0.1\nbegan Some.other\nfailed Some.other 0.2\n' >"$2"
exit 1
END
chmod +x "$folder/bin/test_cuda"
code=0
NOUGHT_BIN=$folder/bin "$check" --emulated --out "$folder/bad" >"$folder/lines" 2>&1 || code=$?
((code == 1)) || fail "the exit code is $code, expected 1"
has '^attention +FAILED .*1 failed; the first: Some.other' "$folder/lines"
has 'attention failed: see ' "$folder/bad/summary.md"

code=0
"$check" --minutes none >"$folder/lines" 2>&1 || code=$?
((code == 2)) || fail "--minutes none ended with $code, expected 2"
has 'must be 1 to 9999, got none' "$folder/lines"
