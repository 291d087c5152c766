#!/usr/bin/env bash
# check-packages.sh accepts the list and names a package that it lacks: check_packages_test.sh SCRIPT BUILD_FOLDER LIST
source "$(dirname "${BASH_SOURCE[0]}")/scaffold.sh"
script=$1 build=$2 list=$3

"$script" "$build" "$list" || fail "a bare machine that installs $list lacks headers"

grep -v '^libgmock-dev' "$list" >"$house/list"
if output=$("$script" "$build" "$house/list"); then fail "not caught: gmock is missing"; fi
[[ $output == "libgmock-dev has "*"$house/list does not install it" ]] || fail "got '$output'"

mkdir "$house/build"
echo 'rule none' >"$house/build/build.ninja"
if "$script" "$house/build" "$list" 2>/dev/null; then fail "a folder that nothing was built in was accepted"; fi

echo "every violation is caught"
