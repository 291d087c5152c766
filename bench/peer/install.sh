#!/usr/bin/env bash
# Installs the peer: bench/peer/install.sh newest|debian|python [transformers] [peft]
#
# newest: the newest PyTorch in a virtual environment of its own, build/peer/venv, with Intel's OpenMP; Debian's PyTorch
# if that fails. transformers, peft: their newest releases too; W5, W6 and --lora take the first, --lora both. debian:
# Debian's PyTorch. python: what runs compare.py. Messages go to stderr; the last line on stdout is the Python that has
# the peer.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
peer=$root/build/peer

packages() {
  local missing=() as_root=()
  for package in "$@"; do
    [[ $(dpkg-query -W -f='${Status}' "$package" 2>/dev/null || true) == "install ok installed" ]] || missing+=("$package")
  done
  ((${#missing[@]})) || return 0
  ((EUID == 0)) || as_root=(sudo)
  echo "compare: installing ${missing[*]} from Debian" >&2
  "${as_root[@]}" apt-get update -qq >&2 &&
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" \
      </dev/null >/dev/null || {
    echo "compare: error: apt-get could not install ${missing[*]}" >&2
    exit 1
  }
}

# A folder without the file `whole` was left by an installation that did not end.
newest() {
  [[ -e $peer/venv/whole ]] && return
  echo "compare: installing the newest PyTorch into ${peer#"$root/"}/venv, about 3 GB: 1 to 10 minutes" >&2
  rm -rf "$peer/venv"
  mkdir -p "$peer"
  /usr/bin/python3 -m venv "$peer/venv" >&2 || return 1
  "$peer/venv/bin/pip" install torch >&2 || return 1
  "$peer/venv/bin/python" -c 'import torch' >&2 || return 1
  "$peer/venv/bin/pip" install intel-openmp >&2 || echo "compare: no Intel OpenMP; going on without it" >&2
  touch "$peer/venv/whole"
}

with_package() {
  "$peer/venv/bin/python" -c "import $1" 2>/dev/null || "$peer/venv/bin/pip" install "$1" >&2 ||
    echo "compare: no $1; what takes it will not run" >&2
}

case ${1:-} in
  python) packages python3 ;;
  newest)
    packages python3-venv python3-dev g++ libgoogle-perftools4 # torch.compile needs g++ and Python's headers
    if newest; then
      for package in "${@:2}"; do with_package "$package"; done
      echo "$peer/venv/bin/python"
      exit
    fi
    echo "compare: the newest PyTorch could not be installed; taking Debian's" >&2
    rm -rf "$peer/venv"
    ;;&
  newest | debian)
    packages python3-torch gcc libgoogle-perftools4
    echo /usr/bin/python3
    ;;
  *)
    echo "install: error: usage: bench/peer/install.sh newest|debian|python [transformers] [peft]" >&2
    exit 2
    ;;
esac
