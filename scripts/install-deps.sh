#!/usr/bin/env bash
# Installs the Debian packages that are missing: scripts/install-deps.sh [dev|package|docs]
#
# deps/apt.txt lists what building, testing and running need; with "dev", deps/apt-dev.txt adds what CI needs besides, with
# "package", deps/apt-package.txt what scripts/package.sh needs, with "docs", deps/apt-docs.txt what scripts/docs-site.sh needs.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

fail() {
  echo "install-deps: error: $*" >&2
  exit 1
}

case ${1:-} in
  '') lists=("$root/deps/apt.txt") ;;
  dev | package | docs) lists=("$root/deps/apt.txt" "$root/deps/apt-$1.txt") ;;
  *) fail "unknown argument $1; usage: scripts/install-deps.sh [dev|package|docs]" ;;
esac

if ! { command -v dpkg-query && command -v apt-get; } >/dev/null; then
  fail "this is not a Debian system; install what ${lists[*]#"$root/"} list by its means, then build with cmake --preset release"
fi

missing=()
while read -r package _; do
  [[ -z $package || $package == \#* ]] && continue
  status=$(dpkg-query -W -f='${Status}' "$package" 2>/dev/null || true)
  [[ $status == "install ok installed" ]] || missing+=("$package")
done < <(cat "${lists[@]}")
[[ ${#missing[@]} -eq 0 ]] && exit 0

as_root=()
if [[ $(id -u) -ne 0 ]]; then
  command -v sudo >/dev/null || fail "missing packages, and neither root nor sudo to install them: ${missing[*]}"
  as_root=(sudo)
  [[ -t 0 ]] || as_root=(sudo -n) # nobody is there to type a password
  "${as_root[@]}" true || fail "missing packages, and sudo refused to install them: ${missing[*]}"
fi
apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300)

echo "install-deps: installing ${missing[*]}"
# apt's progress comes on standard output, between lines of dpkg that nobody needs; errors come on standard error.
"${apt[@]}" update </dev/null || fail "apt-get update failed, for the reason above: is there a network?"
"${apt[@]}" -o APT::Status-Fd=1 install -y --no-install-recommends "${missing[@]}" </dev/null |
  "$root/scripts/progress.sh" install --quiet ||
  fail "apt-get could not install, for the reason above: ${missing[*]}"
