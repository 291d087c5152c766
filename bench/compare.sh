#!/usr/bin/env bash
# Nought beside PyTorch on the same training step: bench/compare.sh [--rounds N] [--steps N] [--threads N] [W1 W2 W3]
#
# Installs the peer from Debian, builds Nought, then runs both in turn several times and prints the ratio of their
# tokens per second. The peer runs as its best users would run it: tcmalloc, AVX-512 kernels, the same threads, bf16.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

install() {
  local missing=()
  for package in python3-torch libgoogle-perftools4; do
    dpkg -s "$package" >/dev/null 2>&1 || missing+=("$package")
  done
  ((${#missing[@]} == 0)) && return
  local root_by=()
  ((EUID == 0)) || root_by=(sudo)
  echo "installing ${missing[*]}"
  "${root_by[@]}" apt-get update -qq
  DEBIAN_FRONTEND=noninteractive "${root_by[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

install
"$root/scripts/build.sh" release >/dev/null
exec /usr/bin/python3 "$root/bench/peer/compare.py" --nought "$root/build/release/bin/nought" "$@"
