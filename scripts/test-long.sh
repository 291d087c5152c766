#!/usr/bin/env bash
# Runs the long sweeps, of which every test run has a sample: scripts/test-long.sh [NAME]...
#
#   flips   1,000 random bit flips over all files of a checkpoint (a minute)
#   meshes  30 steps of four models on every mesh of 4 and 8 ranks, at every ZeRO stage with every pipeline schedule
#           (about 20 minutes on two cores)
#   context 30 steps of three models on every mesh of 8 ranks of which 2 or 4 share sequences, by each method at every
#           ZeRO stage (minutes)
#   adapters 30 steps of a decomposed adapter with dropout on every mesh of 8 ranks at every ZeRO stage (a minute)
#   align   runs that learn from rewards, and reward models, on every mesh of 2 ranks at every ZeRO stage (half a minute)
#   virtual 30 steps of two models in f32 and bf16 on 1, 2, 4 and 8 ranks of 8 virtual ones, at every ZeRO stage, offloaded
#           and not, by their bits (minutes)
#   golden  every golden family on every kind of mesh, of which each run has one for each structure (minutes)
#   families every family that is options of the decoder on every mesh of 4 ranks, packed, and as its plan says (minutes)
#   long    a sequence of 65,536 tokens on 4 ranks by each method, with MLPs in tiles and without, within the predicted
#           peak (5 minutes)
#   offload a model whose optimizer states and parameters are four times the memory of its process trains from files, at 70% of what the
#           drive allows or more (scripts/offload-limit.sh; 3 minutes)
#   data    8 GiB of text are cleaned and searched for near duplicates in 1 GiB of memory, and killed on the way (scripts/data-limit.sh; hours
#           on two cores)
#   bits    every combination of layout, schedule, offload tier and precision whose bits are compared, of which each run has some (minutes)
#   updates the same for updates of optimizers alone (minutes)
#   tiles   plan and ledger of Units in tiles, in every combination (a minute)
#   grammar 500 random JSON schemas, of which each run has 40: what their grammars write satisfies them (seconds)
#   prove   220 calls of ranks that do not meet, circles of waits, leaks and forgotten intervals, made by patterns, of which each run
#           has 40: all are refused, with the place named (seconds); and 1,000 random runs that a proof accepts make two steps,
#           save and resume within the predicted peak and a tenth, of which each run has 30 (10 minutes on two cores); and 100
#           receipts that were tampered with by seeds, of which each run has 10: replays find all of them
#   serve   2,400 requests of random arrival, length, chunks, common beginnings and guesses, on 1 rank and 2, against each alone, of
#           which each run has 48 (seconds)
#   foreign the readers of other programs' files are fuzzed (scripts/fuzz-foreign.sh; 10 minutes and a build with clang)
#   page    pages of nought report in headless Chromium (scripts/page-test.sh; a minute, and chromium)
#   packages  packages are made, and installed in bare roots (scripts/package.sh, scripts/test-packages.sh; a build, and root)
#   marked  every other test that says that it is long (tests/support/size.h): all combinations that agree with
#           their plan
#   elastic 150 kills of any process of a supervised run (nought train --restarts), the supervisor too (about 10 minutes on two cores)
#   kills   201 kills of any process at random moments, at 2, 3 and 4 ranks (about 20 minutes on two cores)
#
# Builds the release preset first. Exit code 0 if everything holds.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

declare -A program=([flips]=test_train [meshes]=test_train [context]=test_train [adapters]=test_train [align]=test_train [virtual]=test_train [golden]=test_train [families]="test_train test_plan" [long]=test_plan [offload]=nought [data]=nought [bits]=test_train [updates]=test_zero [tiles]=test_plan [grammar]=test_grammar [prove]=test_prove [serve]=test_infer [foreign]=nought [page]=nought [packages]=nought [marked]=test_programs [elastic]=test_cli [kills]=test_cli)
declare -A filter=([flips]='BitFlips.*' [meshes]='*MeshRuns.steps_are*' [context]='*ContextParallel.*' [adapters]='AdapterTraining.steps_are*' [align]='PolicyRuns.*:RewardModel*' [virtual]='VirtualRanks.*' [golden]='*GoldenMeshes.*:*GoldenExperts.*' [long]='LongSequences.*' [bits]='*MeshRuns.recomputation*:Pipeline.*:PipelineTrace.*:PipelinePeaks.*:OffloadRuns.*:GuardedOffload.*:LiveRuns.*:UndoneUpdates.*:TrainerRun.*:Hsdp.*:Interleaved.*:Layouts.*:DelayedRuns.*:CompressedRuns.*:Checkpoint.*' [updates]='Offload.*:ShardedOptimizer.*:ExpertGroups.*:Orthogonalize.*' [tiles]='UnitTilesAgreement.*' [grammar]="JsonSchema.*" [prove]="Variants.*:RandomRuns.*:ForgedReceipts.*" [serve]="RandomRequests.*" [elastic]='Restarts.*' [kills]='*Kills.*')
all=(flips meshes context adapters align virtual golden families long offload data bits updates tiles grammar prove serve foreign page packages marked elastic kills)

for name in "$@"; do
  if [[ -z ${program[$name]:-} ]]; then
    echo "test-long: error: no sweep $name; there are: ${all[*]}" >&2
    exit 2
  fi
done
(($#)) || set -- "${all[@]}"

[[ -e build/release/CMakeCache.txt ]] || cmake --preset release
targets=()
for name in "$@"; do
  read -ra programs <<<"${program[$name]}"
  targets+=("${programs[@]}")
done
cmake --build build/release --parallel "$(nproc)" --target "${targets[@]}"

export NOUGHT_LONG=1 OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}
failed=()
for name in "$@"; do
  if [[ $name == offload ]]; then
    scripts/offload-limit.sh </dev/null || failed+=("$name")
    continue
  fi
  if [[ $name == families ]]; then
    build/release/bin/test_train --gtest_filter='GoldenOptions.*:Options/PackedFamily.*' </dev/null &&
      build/release/bin/test_plan --gtest_filter='FamiliesAgreement.*' </dev/null || failed+=("$name")
    continue
  fi
  if [[ $name == data ]]; then
    scripts/data-limit.sh </dev/null || failed+=("$name")
    continue
  fi
  if [[ $name == foreign ]]; then
    scripts/fuzz-foreign.sh </dev/null || failed+=("$name")
    continue
  fi
  if [[ $name == page ]]; then
    scripts/page-test.sh </dev/null || failed+=("$name")
    continue
  fi
  if [[ $name == packages ]]; then
    scripts/package.sh </dev/null && scripts/test-packages.sh </dev/null || failed+=("$name")
    continue
  fi
  if [[ $name == marked ]]; then
    ctest --test-dir build/release --label-regex '^long$' --output-on-failure --no-tests=error </dev/null || failed+=("$name")
    continue
  fi
  build/release/bin/"${program[$name]}" --gtest_filter="${filter[$name]}" </dev/null || failed+=("$name")
done
if ((${#failed[@]})); then
  echo "test-long: failed: ${failed[*]}" >&2
  exit 1
fi
