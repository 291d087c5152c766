#!/usr/bin/env bash
# Installs the packages of scripts/package.sh in bare Debian roots, and trains there: scripts/test-packages.sh [deb|tar]...
#
#   tar  unpacked where nothing is installed (debootstrap's minbase: no compiler, no MPI, no ssh), a user without rights
#        trains on 1 and 2 ranks and generates
#   deb  the same with nought.deb, and the pages and completion are there; with nought-dev, programs are built by CMake and
#        by pkg-config; removing the packages leaves no file behind
#
# Needs root, debootstrap and a mirror (NOUGHT_MIRROR, or debootstrap's own). Roots lie in build/package/roots; the bare one
# is kept. Exit code 0 if everything holds.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
out=$PWD/build/package roots=$PWD/build/package/roots

fail() {
  echo "test-packages: error: $*" >&2
  exit 1
}

(($#)) || set -- deb tar
for kind in "$@"; do
  [[ $kind == deb || $kind == tar ]] || fail "unknown argument $kind; usage: scripts/test-packages.sh [deb|tar]..."
done
[[ $(id -u) -eq 0 ]] || fail "only root may make roots of Debian"
command -v debootstrap >/dev/null || fail "debootstrap is missing: apt-get install debootstrap"

if [[ ! -e $roots/bare.done ]]; then
  mkdir -p "$roots"
  rm -rf "$roots/bare"
  debootstrap --variant=minbase bookworm "$roots/bare" ${NOUGHT_MIRROR:+"$NOUGHT_MIRROR"} >"$roots/bare.log" ||
    fail "debootstrap failed; $roots/bare.log has what it said"
  touch "$roots/bare.done"
fi

# inside ROOT USER COMMAND: the mounts and all processes end with the command.
inside() {
  unshare --mount --pid --fork --mount-proc="$1/proc" sh -c \
    'mount --rbind /dev "$0/dev" && mount --rbind /sys "$0/sys" && exec chroot --userspec="$1" "$0" /bin/sh -ec "$2"' "$1" "$2" "export HOME=/tmp LC_ALL=C
$3"
}

fresh_root() {
  rm -rf "${roots:?}/$1"
  cp -a "$roots/bare" "$roots/$1"
  mkdir "$roots/$1/trial"
  cp README.md examples/quickstart.json "$roots/$1/trial/"
}

smaller=(model.hidden_size=64 model.intermediate_size=128 model.num_hidden_layers=2 model.num_attention_heads=4
  model.num_key_value_heads=2 data.seq_length=32 'data.files=["/trial/README.md"]' training.max_steps=4
  training.warmup_steps=1 training.logging_steps=1)
flags=$(printf " --set '%s'" "${smaller[@]}")

# trains ROOT NOUGHT: on one rank and on two, which agree, and generates.
trains() {
  local losses
  losses=$(inside "$1" 1000:1000 "cd /tmp
$2 --version >&2
$2 info | grep package >&2
for ranks in 1 2; do
  $2 train /trial/quickstart.json --ranks \$ranks $flags --set training.per_device_train_batch_size=\$((4 / ranks)) --set training.output_dir=/tmp/out\$ranks
done
$2 generate /tmp/out2 --prompt 'The ' --max-new-tokens 8 --seed 1 >&2" | sed -nE 's/^step +4\/4  loss ([0-9.]+).*/\1/p')
  [[ $(wc -l <<<"$losses") -eq 2 && $(sort -u <<<"$losses" | wc -l) -eq 1 ]] ||
    fail "the last losses of 1 and 2 ranks should be equal, got: ${losses//$'\n'/ }"
  echo "test-packages: $1: 1 and 2 ranks end at loss $(head -1 <<<"$losses")"
}

test_tar() {
  local archive start=$SECONDS
  archive=$(ls "$out"/nought-*-linux-*.tar.xz) || fail "no archive in build/package: scripts/package.sh tar"
  fresh_root tar
  start=$SECONDS
  mkdir "$roots/tar/opt/nought"
  tar xJf "$archive" -C "$roots/tar/opt/nought" --strip-components=1
  trains "$roots/tar" /opt/nought/bin/nought
  echo "test-packages: tar: $((SECONDS - start)) s from the archive to the end of two runs"
}

test_deb() {
  local left start
  ls "$out"/deb/nought_*.deb >/dev/null || fail "no packages in build/package/deb: scripts/package.sh deb"
  fresh_root deb
  cp "$out"/deb/*.deb "$roots/deb/trial/"
  cp -r tests/install/consumer "$roots/deb/trial/"
  cp /etc/resolv.conf "$roots/deb/etc/resolv.conf"
  local apt="apt-get -qq -y --no-install-recommends -o Dpkg::Use-Pty=0"
  start=$SECONDS
  inside "$roots/deb" 0:0 "export DEBIAN_FRONTEND=noninteractive; apt-get -qq update; $apt install /trial/nought_*.deb >/trial/apt.log 2>&1"
  trains "$roots/deb" nought
  echo "test-packages: deb: $((SECONDS - start)) s from the package to the end of two runs"
  inside "$roots/deb" 0:0 "zcat /usr/share/man/man1/nought-train.1.gz | grep -q 'nought train'
bash -c '. /usr/share/bash-completion/completions/nought && complete -p nought' >/dev/null
export DEBIAN_FRONTEND=noninteractive; $apt install /trial/nought-d*.deb cmake make pkgconf >/trial/apt.log 2>&1
cmake -S /trial/consumer -B /trial/cmake >/dev/null && cmake --build /trial/cmake >/dev/null && /trial/cmake/consumer
g++ /trial/consumer/main.cpp -o /trial/by_pkgconf \$(pkg-config --cflags --libs nought) && /trial/by_pkgconf
test -f /usr/share/doc/nought/docs/config.md -a -f /usr/share/doc/nought/examples/quickstart.json
dpkg -L nought nought-dev nought-doc | sort -u >/trial/files
$apt purge 'nought*' >/trial/apt.log 2>&1"
  left=$(inside "$roots/deb" 0:0 "while read -r path; do test -d \"\$path\" || ! test -e \"\$path\" || echo \"\$path\"; done </trial/files
find / -xdev -path /trial -prune -o -path /tmp -prune -o -name '*nought*' -print")
  [[ -z $left ]] || fail "removing the packages left behind: $(head -5 <<<"$left" | tr '\n' ' ')"
  echo "test-packages: deb: pages, completion, programs by CMake and by pkg-config; removed without a rest"
}

for kind in "$@"; do "test_$kind"; done
echo "test-packages: everything holds"
