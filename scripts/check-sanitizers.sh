#!/usr/bin/env bash
# Runs the small tests of every folder under the address and undefined-behaviour sanitizers. clang++ builds them and all
# programs, and takes warnings for errors.
#
# A test says its size in its file (tests/support/size.h). Medium ones are sweeps over threads, ranks, sizes and optimizers,
# which run the code of small ones for minutes; tests of speed; a limit of the address space, which leaves no room for what
# the sanitizers reserve; and processes, above all ranks under mpirun. They run under the sanitizers too, but take long:
# scripts/test.sh asan.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

"$root/scripts/build.sh" asan -DNOUGHT_SMALL_TESTS=ON -DNOUGHT_WERROR=ON

cd "$root"
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}
ctest --preset asan --parallel "$(nproc)" --label-regex '^small$' --no-tests=error </dev/null
