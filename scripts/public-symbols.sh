#!/usr/bin/env bash
# The functions that programs link from the public headers, so that a break is seen: scripts/public-symbols.sh [--update]
#
# cmake/public_headers.txt lists the headers, cmake/public_symbols.txt the functions that the libraries of build/release (or
# of PUBLIC_SYMBOLS_BUILD) define for the classes and functions that these headers declare. Without --update the two are
# compared. A function that is gone, or has other parameters, breaks programs: say so in CHANGELOG.md, and run this with
# --update. Exits with 1 if there is one; new functions are told.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=${PUBLIC_SYMBOLS_BUILD:-build/release}
list=cmake/public_symbols.txt

fail() {
  echo "public-symbols: error: $*" >&2
  exit 1
}

documented=$(sed -nE 's/^\| `([a-z_]+\/[a-z_]+\.h)` \|.*/\1/p' docs/library.md | LC_ALL=C sort)
differing=$(LC_ALL=C diff <(printf '%s\n' "$documented") <(LC_ALL=C sort cmake/public_headers.txt) | sed -n 's/^[<>] //p' || true)
[[ -z $differing ]] || fail "docs/library.md and cmake/public_headers.txt list different headers:" $differing

shopt -s nullglob
libraries=("$build"/src/nought/*/libnought_*.a)
((${#libraries[@]})) || fail "there are no libraries in $build/src/nought: scripts/build.sh"

headers=$(sed 's|^|src/nought/|' cmake/public_headers.txt)
# What stands at the left margin of a header: classes, and functions with their parentheses.
# shellcheck disable=SC2086 # a name in each line
names=$(cat $headers | sed -nE '/^(template|using|namespace|#|\/\/|\}|inline constexpr)/d
  s/^(class|struct|enum class|enum) (\[\[[a-z]+\]\] )?([A-Za-z_0-9]+).*/\3/p; s/^[A-Za-z].*[ *&]([A-Za-z_0-9]+)\(.*/\1/p' | sort -u)
# Members that are private to a class: CLASS::FUNCTION.
# shellcheck disable=SC2086
hidden=$(cat $headers | awk '
  /^(class|struct) / { name = $2; open = 1 }
  /^}/ { name = "" }
  /^ (private|protected|public):/ { open = /public/ }
  name != "" && !open && match($0, /[A-Za-z_0-9]+\(/) { print name "::" substr($0, RSTART, RLENGTH - 1) }' | sort -u)

symbols=$(nm --demangle --defined-only --extern-only "${libraries[@]}" 2>/dev/null | awk -v names="$names" -v hidden="$hidden" '
  BEGIN {
    count = split(names, each, "\n"); for (i = 1; i <= count; ++i) known[each[i]] = 1
    count = split(hidden, each, "\n"); for (i = 1; i <= count; ++i) inside[each[i]] = 1
  }
  $2 == "T" {
    sub(/^[0-9a-f]+ T /, "")
    if (!/^nought::/) next
    name = member = substr($0, 9); sub(/[:(<\[ ].*/, "", name); sub(/[(<\[ ].*/, "", member)
    if (name in known && !(member in inside)) print
  }' | sed 's/std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >/std::string/g; s/\[abi:cxx11\]//g' |
  LC_ALL=C sort -u)

if [[ ${1:-} == --update ]]; then
  printf '%s\n' "$symbols" >"$list"
elif (($#)); then
  fail "unknown argument $1; usage: scripts/public-symbols.sh [--update]"
else
  gone=$(LC_ALL=C comm -13 <(printf '%s\n' "$symbols") "$list")
  LC_ALL=C comm -23 <(printf '%s\n' "$symbols") "$list" | sed 's/^/public-symbols: new: /'
  if [[ -n $gone ]]; then
    printf '%s\n' "$gone" | sed 's/^/gone, or with other parameters: /'
    fail "programs that call these do not build any more; if that is meant, say it in CHANGELOG.md and run" \
      "scripts/public-symbols.sh --update"
  fi
fi
echo "public-symbols: $(wc -l <"$list") functions of $(wc -l <cmake/public_headers.txt) public headers"
