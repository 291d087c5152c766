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
join() { (IFS='|' && echo "$*"); }
pattern="^($(join "${folders[@]}"))/"
# CMake's expressions have nine groups at most, so names are written out.
left_out=(
  capped_at what_takes_long_costs_steps a_good_part_of_the_peak # time
  very_many_objects very_many_tensors bounded_in_steps_memory merges_of_a_ranked_vocabulary AddressSpaceDeathTest # memory
  /mpi_
  CodedProducts.{are_those,never_hold} FewRows.{every,an_element} GemmFloat.{every,sums} GemmBf16.{an_element,sums} Updates.sgd Norms.{backward_is,do_not}
  AttentionTest.{few,every,cpu,values,capped,reference_gradients} AttentionMerge.{pieces,gradients} FillNormal.has_them
  AttentionFunctions.{norms,rope,inter,capped} TokenDispatch.experts_on
  Self.a_group_of_one Mesh.messages_between_stages_keep Grid.the_groups 'ThreadRanks.*/[2-9]'
  ShardedOptimizer.{sgd,lion,adagrad,eight_bit,adam,lamb,sixteen_bit_training_stays,parameter_groups,muon}
  Offload.{what_is_put_off,changes_no_bit_{of,whatever},of_parameters_{changes,without},of_gradients_to_files,of_everything,sums_of}
  Placement.{a_rank,any_placement} ExpertGroups.every_mesh OptimizerSeams.random_rounding_is Codes.are_loaded
  Orthogonalize.{muon,devices} on_the_reference the_number_of_threads_changes_no_bit # sweeps
)
ctest --preset asan --parallel "$(nproc)" --tests-regex "$pattern" --exclude-regex "$(join "${left_out[@]}")" --no-tests=error </dev/null
