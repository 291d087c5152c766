#!/usr/bin/env bash
# Nought beside PyTorch on the same training step, on this machine:
# bench/compare.sh [--quick] [--lora] [--device cuda] [--help for all options] [W1 W2 W3 W4 W5 W6]
#
# Installs the newest PyTorch from Python's package index into build/peer (about 3 GB to load, 6 GB on disk), or Debian's
# PyTorch 1.13 where that fails; builds Nought; tries what an expert would set; then runs both in turn and prints tokens
# per second, their ratio, and what both reach of the CPU's peak. Remove build/peer to get a newer PyTorch later.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

command -v /usr/bin/python3 >/dev/null || "$root/bench/peer/install.sh" python
exec /usr/bin/python3 "$root/bench/peer/compare.py" "$@"
