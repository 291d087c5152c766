#!/usr/bin/env bash
# Makes every system call of saving fail, each in turn and in every way: scripts/faults.sh [--gtest_filter=...]
#
# An error once and from then on (EIO, ENOSPC, EINTR), a short write, a crash before and after the call. Afterwards the old
# or the new state must be there, whole. tests/faults says how; the suite has a small part of it.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

"$root/scripts/build.sh" release test_faults
NOUGHT_FAULTS=whole exec "$root/build/release/bin/test_faults" "$@"
