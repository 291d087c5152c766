#!/usr/bin/env bash
# Holds that a bare machine can build: scripts/check-packages.sh [BUILD_FOLDER [LIST]]
#
# Every header that the compiler has read for BUILD_FOLDER (build/release) belongs to a Debian package of LIST
# (deps/apt.txt), or to one that these depend on. The machine at hand may have others besides, a bare one has not.
# One line for each package that is missing from LIST; exits with 1 if there is any.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=${1:-$root/build/release} list=${2:-$root/deps/apt.txt}

headers=$(ninja -C "$build" -t deps | sed -nE 's#^ +(/usr/.*)#\1#p' | sort -u | xargs -r realpath -- | sort -u)
[[ -n $headers ]] || {
  echo "check-packages: error: $build has been built of nothing below /usr; build it with ninja first" >&2
  exit 2
}
# "libfmt-dev:amd64: /usr/include/fmt/core.h"; a header may also be of no package.
owners=$(xargs -r dpkg-query -S -- <<<"$headers" 2>/dev/null | sed -E 's#^([^:,]+)[^ ]* .*/#\1 #' | sort -u -k1,1) || true
installed=$(sed -E 's/#.*//; /^ *$/d' "$list" | xargs apt-cache depends --recurse --no-recommends --no-suggests \
  --no-conflicts --no-breaks --no-replaces --no-enhances | sed -nE 's/^([^ <].*)$/\1/p' | sort -u)
missing=0
while read -r package header; do
  grep -qxF "$package" <<<"$installed" && continue
  echo "$package has $header, which the build reads, and $list does not install it"
  missing=1
done <<<"$owners"
exit "$missing"
