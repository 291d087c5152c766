#!/usr/bin/env bash
# mutants.sh --check accepts edits that apply once, wherever the code stands and however it is wrapped, and names those that
# do not; a mistake that does not compile is no interrupted build; a run in parts adds up: mutants_test.sh SCRIPTS
source "$(dirname "${BASH_SOURCE[0]}")/scaffold.sh"
scripts=$1

folder=$house/src/nought/a
mkdir -p "$house/scripts/mutants" "$folder" "$house/src/nought/b"
cp "$scripts/mutants.sh" "$scripts/mutants.pl" "$house/scripts"
cat >"$folder/a.cpp" <<'EOF'
int once(int x) { return two(x, 3); }  // two(x, 4)
A::A(int x) : x_{x}, y_(once(x)) { y_ += 1; }
void A::twice() { y_ += 1; }
void A::twice(int) { const char* text = "} /* \" //"; done(); }
EOF
cp "$folder/a.cpp" "$house/a.cpp"

# list EDIT...: writes a list with one mistake of these lines.
list() {
  {
    echo '[name] test_a A.*'
    echo 'It is wrong.'
    printf '  %s\n' "$@"
  } >"$house/scripts/mutants/a.txt"
}

expect_applies() {
  list "$@"
  local output
  output=$("$house/scripts/mutants.sh" --check 2>&1) || fail "$1: $output"
  [[ $output == 'mutants: all 1 edits apply' ]] || fail "$1: $output"
}

# expect_error TEXT: --check fails and says so.
expect_error() {
  local output
  if output=$("$house/scripts/mutants.sh" --check 2>&1); then fail "not caught: $1"; fi
  [[ $output == *"$1"* ]] || fail "expected '$1', got '$output'"
}

# expect_code EDIT CODE: after the edit the code holds this.
expect_code() {
  expect_applies "$1"
  local changed=$house/changed/nought/a/a.cpp
  [[ $(cd "$house" && perl scripts/mutants.pl change a/name changed) == src/nought/a/a.cpp ]] || fail "$1: the name of the file"
  [[ $(<"$changed") == *"$2"* ]] || fail "$1: $(<"$changed")"
  cmp -s "$house/a.cpp" "$folder/a.cpp" || fail 'the tree was changed'
}

expect_code 'two( x,3 ) => 4' 'return 4; }  // two(x, 4)'
expect_code 'in A::A: y_ += 1; =>' 'y_(once(x)) {  }'
expect_code 'in A::twice: y_ += 1 => y_ -= 1' 'void A::twice() { y_ -= 1; }'
expect_code 'in once: x, => x +' 'return two(x + 3)'
expect_applies 'void A::twice(int) {' '  const char* text = "} /* \" //"; =>' '  text;'
expect_applies 'done() => "one string"'
mkdir "$folder/below"
echo 'struct B { int b = 1; };' >"$folder/below/b.h"
expect_applies 'in B: 1 => 2'
mv "$folder/below/b.h" "$house/src/nought/b"
expect_applies 'in b/B: 1 => 2'
expect_applies 'in b/: b = 1 => b = 2'
[[ $("$house/scripts/mutants.sh" --list) == 'a/name '*'It is wrong.' ]] || fail 'the list'

list 'y_ += 1 => y_'
expect_error 'the old code is 2 times in src/nought/a: src/nought/a/a.cpp, src/nought/a/a.cpp'
list 'y_ += 11 => y_'
expect_error 'the old code is not in src/nought/a'
list 'in A::twice: two => three'
expect_error 'the old code is not in src/nought/a, A::twice'
list 'two(x, 4) => 4'
expect_error 'the old code is not in src/nought/a'
list 'in c/: one => two'
expect_error 'there is no folder src/nought/c'
list 'x , 3 => x,3'
expect_error 'a/name changes nothing'
list 'two'
expect_error "a/name has no edit 'old => new'"
list 'two => three' && sed -i 's/ test_a.*//' "$house/scripts/mutants/a.txt"
expect_error 'a/name names no test'
list 'two => three' && echo '[name]' >>"$house/scripts/mutants/a.txt"
expect_error 'a/name is there twice'
echo 'every bad edit is named'

# The rest tries mistakes in a house of three files, whose test program knows the options of gtest.
for tool in git cmake ninja c++; do command -v "$tool" >/dev/null || exit 0; done
git -C "$house" init -q
echo /build/ >"$house/.gitignore"
rm -r "$house/src/nought/b"
printf '#pragma once\ninline int one() { return 1; }\nint two();\nint three();\n' >"$folder/a.h"
printf '#include "nought/a/a.h"\nint two() { return one() + 1; }\n' >"$folder/a.cpp"
printf '#include "nought/a/a.h"\nint three() { return two() + 1; }\n' >"$folder/b.cpp"
cat >"$house/test.cpp" <<'EOF'
#include <cstdio>
#include <cstring>
#include "nought/a/a.h"
int main(int count, char** arguments) {
  for (int i = 1; i < count; ++i)
    if (std::strcmp(arguments[i], "--gtest_list_tests") == 0)
      return std::puts("Running main()") < 0 || (std::strstr(arguments[i + 1], "A.*") && std::puts("A.\n  is_right") < 0);
  return three() == 3 ? 0 : 1;
}
EOF
cat >"$house/CMakeLists.txt" <<'EOF'
cmake_minimum_required(VERSION 3.25)
project(house CXX)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
add_library(a STATIC src/nought/a/a.cpp src/nought/a/b.cpp)
set_target_properties(a PROPERTIES UNITY_BUILD ON POSITION_INDEPENDENT_CODE ON)
target_include_directories(a PUBLIC src)
add_executable(test_a test.cpp)
target_link_libraries(test_a a)
add_custom_command(TARGET test_a POST_BUILD COMMAND ${CMAKE_COMMAND} -E true)
EOF
cmake -S "$house" -B "$house/build/release" -G Ninja -DCMAKE_BUILD_TYPE=Release >/dev/null
# What compiles mistakes: it fails with these words, if there are some.
mkdir "$house/bin"
printf '#!/bin/sh\nif [ -e "%s/said" ]; then cat "%s/said"; exit 2; fi\nexec "$@"\n' "$house" "$house" >"$house/bin/ccache"
chmod +x "$house/bin/ccache"

# expect_outcome CODE TEXT [ARGUMENT...]: a run ends with this exit code and says so.
expect_outcome() {
  local output code=0 expected=$1 text=$2
  shift 2
  output=$(PATH=$house/bin:$PATH MUTANTS_JOBS=2 "$house/scripts/mutants.sh" "$@" 2>&1) || code=$?
  [[ $code -eq $expected ]] || fail "exit code $code, expected $expected: $output"
  [[ $output == *"$text"* ]] || fail "expected '$text', got '$output'"
}

list 'in two: 1 => 2'
expect_outcome 0 '1 of 1 mistakes are caught (100%)'
list 'in one: 1 => 1 + 0'
expect_outcome 0 '1 of 1 mistakes are caught (100%)' --resume
expect_outcome 1 'survived: a/name'
expect_outcome 1 '| `a` | 1 | 0 | 1 |' --table
sed -i '2isurvives: nobody asks.' "$house/scripts/mutants/a.txt"
expect_outcome 0 'survived: a/name: It is wrong. Known: nobody asks.' --table
list 'in one: 1 => 2'
sed 's/name/more/;s/in one: 1 => 2/in a\/two: + 1 => + 1 + 0/' "$house/scripts/mutants/a.txt" >"$house/scripts/mutants/b.txt"
expect_outcome 0 'caught ' 'a/*'
expect_outcome 0 '1 mistakes have not been tried' --table
expect_outcome 1 '1 of 2 mistakes are caught (50%)' --resume
rm "$house/scripts/mutants/b.txt"
echo 'a run in parts adds up'

list 'in one: 1 => 2' && sed -i 's/A\.\*/A.*:B.*/' "$house/scripts/mutants/a.txt"
expect_outcome 2 'test_a has no test A.*:B.*'
list 'in two: 1 => four'
expect_outcome 2 'does not compile: a/name'
for said in 'ninja: build stopped: interrupted by user.' 'g++: fatal error: Killed signal terminated program cc1plus'; do
  echo "$said" >"$house/said"
  expect_outcome 2 'mutants: error: a build was interrupted'
done
echo 'an interrupted build is no mistake that does not compile'
