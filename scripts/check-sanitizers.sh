#!/usr/bin/env bash
# Runs the fast test programs under the address and undefined-behaviour sanitizers: those of memory, files, kernels, ranks
# and what they share out.
#
# The rest of the suite runs under them too, but takes long: scripts/test.sh asan. Left out here are tests of speed, and of
# sweeps over threads, ranks, sizes and optimizers all but the small ones: the large ones run the same code for minutes. A
# limit of the address space leaves no room for what the sanitizers reserve, and ranks under mpirun miss their time limits:
# thread ranks run the same checks.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
folders=(base tensor io aio kernels autograd comm zero fuzz)

"$root/scripts/build.sh" asan "${folders[@]/#/test_}"

cd "$root"
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}
pattern=$(IFS='|' && echo "^(${folders[*]})/")
left_out="capped_at|what_takes_long_costs_steps|very_many_objects|ShardedOptimizer.(sgd|lion|adagrad|eight_bit)|Offload.(what_is_put_off|changes_no_bit_of_(any|segments)|of_parameters_changes)|on_the_reference|a_good_part_of_the_peak|the_number_of_threads_changes_no_bit|/mpi_|ThreadRanks.*/[3-9]|very_many_tensors|bounded_in_steps_memory|merges_of_a_ranked_vocabulary|AddressSpaceDeathTest"
ctest --preset asan --parallel "$(nproc)" --tests-regex "$pattern" --exclude-regex "$left_out" --no-tests=error </dev/null
