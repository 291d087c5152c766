#!/usr/bin/env bash
# mutants.sh --check accepts edits that apply once and names those that do not; a mistake that does not compile is no
# interrupted build: mutants_test.sh SCRIPT
source "$(dirname "${BASH_SOURCE[0]}")/scaffold.sh"
script=$1

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

# The rest stands in for cmake: it builds whatever has no "four", and says why it does not.
command -v git >/dev/null || exit 0
git -C "$house" init -q
echo /build/ >"$house/.gitignore"
mkdir -p "$house/bin"
cat >"$house/bin/cmake" <<EOF
#!/bin/sh
if [ "\$1" = --preset ]; then
  mkdir -p build/release/bin && : >build/release/build.ninja
  printf '#!/bin/sh\n! grep -q five "%s/src/a.cpp"\n' "\$PWD" >build/release/bin/test_a
  chmod +x build/release/bin/test_a
elif grep -q four "\$2/../../src/a.cpp"; then
  cat "$house/said" && exit 2
fi
EOF
chmod +x "$house/bin/cmake"

# expect_outcome CODE TEXT: a run ends with this exit code and says so, and leaves the code without the mistake.
expect_outcome() {
  local output code=0
  output=$(PATH=$house/bin:$PATH "$house/scripts/mutants.sh" 2>&1) || code=$?
  [[ $code -eq $1 ]] || fail "exit code $code, expected $1: $output"
  [[ $output == *"$2"* ]] || fail "expected '$2', got '$output'"
  cmp -s "$house/src/a.cpp" "$house/build/mutants/src/a.cpp" || fail "the mistake was left in the copy"
}

list 'file: src/a.cpp' '-  three' '+  five'
expect_outcome 0 '1 of 1 mistakes are caught (100%)'
list 'file: src/a.cpp' '-  three' '+  3'
expect_outcome 1 'survived: a/name'
list 'file: src/a.cpp' '-  three' '+  four'
echo 'a.cpp:3: error: four is no number' >"$house/said"
expect_outcome 2 'does not compile: a/name'
for said in 'ninja: build stopped: interrupted by user.' 'g++: fatal error: Killed signal terminated program cc1plus'; do
  echo "$said" >"$house/said"
  expect_outcome 2 'mutants: error: the build of test_a was interrupted'
done
echo 'an interrupted build is no mistake that does not compile'
