#!/usr/bin/env bash
# WriteVersion.cmake names the commit, marks changes, and touches its file only when the text changes:
# write_version_test.sh CMAKE SCRIPT
source "$(dirname "${BASH_SOURCE[0]}")/scaffold.sh"
cmake=$1
script=$2
work=$house

write_version() {
  "$cmake" -D VERSION=1.2.3 -D SOURCE="$work/house" -D TEMPLATE="$work/version.in" -D OUTPUT="$work/version" -P "$script"
}

expect_version() {
  write_version
  [[ $(<"$work/version") == "$1" ]] || fail "expected '$1', got '$(<"$work/version")'"
}

in_house() { git -C "$work/house" -c user.name=test -c user.email=test@localhost -c commit.gpgsign=false "$@"; }

# A release archive that lies within somebody's repository does not take that repository's commit for its own.
echo '@VERSION@ (@COMMIT@)' >"$work/version.in"
mkdir "$work/house"
git -C "$work" init -q
expect_version "1.2.3 (unknown)"

in_house init -q
expect_version "1.2.3 (unknown)" # no commit yet
echo wall >"$work/house/wall"
in_house add wall
in_house commit -q -m "Build a wall"
in_house tag v1
commit=$(in_house rev-parse --short=7 HEAD)
expect_version "1.2.3 ($commit)"

touch -d 2020-01-01 "$work/version"
write_version
[[ $(date -r "$work/version" +%Y) == 2020 ]] || fail "the file was touched though its text is the same"

echo note >"$work/house/untracked"
expect_version "1.2.3 ($commit)"
echo door >>"$work/house/wall"
expect_version "1.2.3 ($commit+)"
in_house commit -q -a -m "Add a door"
expect_version "1.2.3 ($(in_house rev-parse --short=7 HEAD))"

echo "the version names the commit"
