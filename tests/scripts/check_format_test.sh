#!/usr/bin/env bash
# check-format.sh names the files that are not formatted, and --fix formats them, with and without a repository:
# check_format_test.sh SCRIPT STYLE
source "$(dirname "${BASH_SOURCE[0]}")/scaffold.sh"
script=$1
style=$2

expect_formatted() { "$script" "$house" >/dev/null || fail "refused though it is formatted: $1"; }

# expect_named FILES: the script fails and prints these lines.
expect_named() {
  local output
  if output=$("$script" "$house" 2>/dev/null); then fail "not caught: $1"; fi
  [[ $output == "$1" ]] || fail "expected '$1', got '$output'"
}

cp "$style" "$house/.clang-format"
mkdir -p "$house/src" "$house/build"
echo 'int one();' >"$house/src/one.h"
echo 'int  generated ( ) ;' >"$house/build/generated.h"
expect_formatted "one.h, and a build folder that does not count"

echo 'int  two(  );' >"$house/src/two.h"
echo 'int three( );' >"$house/three.cpp"
expect_named $'./src/two.h\n./three.cpp'
cp "$house/src/two.h" "$house/untracked"

git -C "$house" init -q
git -C "$house" add .clang-format src three.cpp
mv "$house/untracked" "$house/untracked.cpp"
expect_named $'src/two.h\nthree.cpp'
"$script" --fix "$house"
expect_formatted "what --fix has formatted"
[[ $(<"$house/src/two.h") == 'int two();' ]] || fail "--fix left '$(<"$house/src/two.h")'"
[[ $(<"$house/untracked.cpp") == 'int  two(  );' ]] || fail "--fix changed a file that is not tracked"

echo "every unformatted file is named"
