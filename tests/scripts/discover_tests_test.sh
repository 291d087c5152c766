#!/usr/bin/env bash
# DiscoverTests.cmake makes entries of a program's tests by suite and size, and CTest runs them: discover_tests_test.sh CMAKE SCRIPT
source "$(dirname "${BASH_SOURCE[0]}")/scaffold.sh"
cmake=$1 script=$2

# A program of tests: it lists their sizes, and says what it was asked for; what is called "fails" fails.
cat >"$house/program" <<'END_OF_PROGRAM'
#!/usr/bin/env bash
if [[ $1 == --list_sizes ]]; then
  printf 'small A.one\nunmarked A.two\nmedium A.fails\nlong A.sweep\nsmall F/B.x/0\n'
  printf 'medium C.%d\n' 1 2 3 4 5
  exit
fi
echo "asked: $1 ${NOUGHT_LONG:+long}"
[[ $1 != *fails* ]]
END_OF_PROGRAM
chmod +x "$house/program"

discover() { "$cmake" -D PROGRAM="$house/program" -D FOLDER=zoo -D UNMARKED=small -D OUTPUT="$house/CTestTestfile.cmake" -P "$script"; }
run() { (cd "$house" && ctest --output-on-failure -V "$@" 2>&1) || true; }
names() { run -N "$@" | sed -n 's/^  Test *#[0-9]*: //p' | xargs; }
expect() { [[ $1 == "$2" ]] || fail "expected '$2', got '$1'"; }

discover
expect "$(names)" 'zoo/A zoo/A.medium_1 zoo/A.sweep zoo/F/B zoo/C.medium_1 zoo/C.medium_2'
expect "$(names -L small)" 'zoo/A zoo/F/B'
expect "$(names -L long)" 'zoo/A.sweep'
expect "$(NOUGHT_EACH_TEST=1 names -R 'two|x/0')" 'zoo/A.two zoo/F/B.x/0'

output=$(run)
for asked in 'A.one:A.two' 'A.fails' 'A.sweep long' 'F/B.*' 'C.1:C.2:C.3:C.4' 'C.5'; do
  [[ $output == *"asked: --gtest_filter=$asked"* ]] || fail "nobody asked for $asked: $output"
done
[[ $output == *'83% tests passed, 1 tests failed out of 6'* ]] || fail "not one of six failed: $output"

sed -i 's/medium A.fails/tiny A.fails/' "$house/program"
if output=$(discover 2>&1); then fail "an unknown size was taken"; fi
[[ $output == *'tiny A.fails'* ]] || fail "the size is not named: $output"
echo "tests are discovered by suite and size"
