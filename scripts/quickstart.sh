#!/usr/bin/env bash
# The first mile: installs, builds, trains a small Llama on the C++ headers of this machine with two processes, generates.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

"$root/scripts/build.sh" release nought

cd "$root"
nought=build/release/bin/nought
out=out/quickstart
"$nought" train examples/quickstart.json --ranks 2 --overwrite --set training.output_dir="$out"
echo
"$nought" generate "$out" --prompt $'template<typename _Tp>\n' --max-new-tokens 400 --temperature 0.6 --seed 1
