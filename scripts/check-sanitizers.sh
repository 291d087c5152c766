#!/usr/bin/env bash
# Runs the fast test programs under the address and undefined-behaviour sanitizers: everything below a training run.
#
# The rest of the suite runs under them too, but takes long: scripts/test.sh asan. A test of speed says nothing here, and
# a sweep of shapes and threads for equal bits nothing that the other tests of these kernels do not say.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
folders=(base tensor io kernels autograd comm optim zero models data config fuzz)

"$root/scripts/build.sh" asan "${folders[@]/#/test_}" test_comm_mpi test_comm_mpi_seams

cd "$root"
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}
pattern=$(IFS='|' && echo "^(${folders[*]})/")
ctest --preset asan --parallel "$(nproc)" --tests-regex "$pattern" --exclude-regex "capped_at|on_the_reference|a_good_part_of_the_peak|the_number_of_threads_changes_no_bit" --no-tests=error </dev/null
