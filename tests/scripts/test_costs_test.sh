#!/usr/bin/env bash
# test-costs.sh adds up the last run of CTest by program, suite and test: test_costs_test.sh SCRIPT
source "$(dirname "${BASH_SOURCE[0]}")/scaffold.sh"
script=$1

mkdir -p "$house/Testing/Temporary"
cat >"$house/Testing/Temporary/LastTest.log" <<'END_OF_LOG'
1/3 Test: zoo/A
[       OK ] A.one (10 ms)
[  FAILED  ] A.two, where GetParam() = 3 (1230 ms)
Test time =   1.50 sec
2/3 Test: zoo/A.medium_1
[       OK ] A.three (20 ms)
Test time =   0.25 sec
3/3 Test: comm/mpi_checks_3_windows=0
Test time =   2.00 sec
END_OF_LOG

rows=$("$script" "$house" | awk 'NF == 3 && $1 != "seconds" { print $1, $2, $3 }')
[[ $rows == '2.00 1 comm
1.75 3 zoo
3.75 4 everything
2.00 1 comm/mpi_checks_3_windows=0
1.75 3 zoo/A
1.23 1 zoo/A.two
0.02 1 zoo/A.three
0.01 1 zoo/A.one' ]] || fail "got: $rows"
if "$script" "$house/none" 2>/dev/null; then fail "a folder without a run was taken"; fi
echo "costs are added up"
