#!/usr/bin/env bash
# mutants.sh --check accepts edits that apply once and names those that do not: mutants_test.sh SCRIPT
set -euo pipefail
script=$1
house=$(mktemp -d)
trap 'rm -rf "$house"' EXIT

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

mkdir -p "$house/scripts/mutants" "$house/src"
cp "$script" "$house/scripts/mutants.sh"
printf 'one\ntwo\n  three\ntwo\n' >"$house/src/a.cpp"

# list EDIT...: writes a list with one mistake of these lines.
list() {
  {
    echo '[name]'
    echo 'It is wrong.'
    printf '%s\n' "$@"
    echo 'test: test_a *'
  } >"$house/scripts/mutants/a.txt"
}

# expect_error TEXT: --check fails and says so.
expect_error() {
  local output
  if output=$("$house/scripts/mutants.sh" --check 2>&1); then fail "not caught: $1"; fi
  [[ $output == *"$1"* ]] || fail "expected '$1', got '$output'"
}

list 'file: src/a.cpp' '-  three' '+  four'
[[ $("$house/scripts/mutants.sh" --check) == 'mutants: all 1 edits apply' ]] || fail 'an edit that applies'
list 'file: src/a.cpp' ' one' '-two'
[[ $("$house/scripts/mutants.sh" --check) == 'mutants: all 1 edits apply' ]] || fail 'a line that is unique with another'
[[ $("$house/scripts/mutants.sh" --list) == 'a/name '*'It is wrong.' ]] || fail 'the list'
cmp -s <(printf 'one\ntwo\n  three\ntwo\n') "$house/src/a.cpp" || fail 'the tree was changed'

list 'file: src/a.cpp' '-two' '+four'
expect_error 'the old lines are more than once in src/a.cpp'
list 'file: src/a.cpp' '-three' '+four'
expect_error 'the old lines are not in src/a.cpp'
list 'file: src/b.cpp' '-one'
expect_error 'there is no file src/b.cpp'
list 'file: src/a.cpp' '-one' '+one'
expect_error 'a/name changes nothing'
list '-one'
expect_error 'a/name names no file'
list 'file: src/a.cpp' '-one' '[name]'
expect_error 'a/name is there twice'
echo 'every bad edit is named'
