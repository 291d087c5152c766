#!/usr/bin/env bash
# Makes packages of what is committed here: scripts/package.sh [deb|tar]...   (default: both)
#
#   deb  nought, nought-dev and nought-doc for Debian 12, in build/package/deb
#   tar  build/package/nought-VERSION-linux-x86_64.tar.xz: the program with its libraries and the parts of Open MPI that it
#        starts ranks with. It runs where it is unpacked, on any Linux with glibc 2.36 or newer, as a user without rights.
#
# A version is that of CMakeLists.txt and the commit's time and name. The same commit gives the same bytes on the same
# Debian. scripts/test-packages.sh installs them in bare roots and trains there.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD

fail() {
  echo "package: error: $*" >&2
  exit 1
}

(($#)) || set -- deb tar
for kind in "$@"; do
  [[ $kind == deb || $kind == tar ]] || fail "unknown argument $kind; usage: scripts/package.sh [deb|tar]..."
done
scripts/install-deps.sh package

umask 022
version=$(sed -nE 's/^project\(nought VERSION ([0-9.]+).*/\1/p' CMakeLists.txt)
export SOURCE_DATE_EPOCH=1700000000 TZ=UTC LC_ALL=C
if commit=$(git rev-parse --short=8 HEAD 2>/dev/null); then
  SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
  version+="+git$(date -d "@$SOURCE_DATE_EPOCH" +%Y%m%d.%H%M).$commit"
  [[ -z $(git status --porcelain --untracked-files=no) ]] || version+=.changed
fi

build=$root/build/package
cmake --preset release -B "$build" -DCMAKE_INSTALL_PREFIX=/usr -DNOUGHT_TESTS=OFF -DNOUGHT_CUDA=OFF \
  -DNOUGHT_PACKAGE_VERSION="$version" >/dev/null || fail "cmake could not configure build/package"
cmake --build "$build" --parallel "${NOUGHT_JOBS:-$(nproc)}" | scripts/progress.sh build

make_deb() {
  rm -rf "$build/deb" "$build/_CPack_Packages"
  (cd "$build" && NOUGHT_PACKAGE="Debian package nought $version" cpack -G DEB -B deb >cpack.log) ||
    fail "cpack could not make packages, for the reason above; all it said is in build/package/cpack.log"
  ls "$build"/deb/*.deb
}

# The libraries that files were linked with, all but those of the C library, which go with the machine.
libraries_of() {
  ldd "$@" | awk '$3 ~ /^\// {print $3}' | { grep -Ev '/(libc|libm|libdl|librt|libpthread|libresolv)\.so' || true; } | sort -u
}

# The wrappers, as an environment alone tells Open MPI where it lies. $1: the program; $2: where the folder lib/nought is,
# as seen from it.
write_wrapper() {
  cat >"$1" <<END
#!/bin/sh
# Starts the program with the Open MPI that lies beside it.
self=\$(readlink -f -- "\$0")
lib=\$(readlink -f -- "\${self%/*}/$2")
. "\$lib/openmpi/environment"
exec "\$lib/$3" "\$@"
END
  chmod 755 "$1"
}

copy_openmpi() {
  local lib=$1 mpi=$1/openmpi pkglib module pmix
  pkglib=$(ompi_info --path pkglibdir --parsable | sed 's/.*://')
  pmix=$(dirname "$(realpath "$(ldconfig -p | awk '/libpmix\.so\.2 / {print $NF; exit}')")")/pmix
  mkdir -p "$mpi/bin" "$mpi/programs" "$mpi/components" "$mpi/share" "$mpi/etc" "$mpi/pmix"
  cp -L "$(command -v orterun)" "$mpi/programs/mpirun"
  cp -L "$(command -v orted)" "$mpi/programs/orted"
  # Ranks meet over shared memory and TCP; drivers of fast networks, MPI's files and OpenSHMEM stay out.
  for module in "$pkglib"/mca_*.so; do
    [[ $module =~ ucx|ofi|psm|openib|flux|jsm|memheap|scoll|spml|sshmem|romio|monitoring ]] || cp -L "$module" "$mpi/components/"
  done
  cp -L "$pmix"/*.so "$mpi/pmix/"
  cp -L /usr/share/openmpi/*.txt "$mpi/share/"
  cp -L /etc/openmpi/openmpi-mca-params.conf "$mpi/etc/"
  cat >"$mpi/environment" <<'END'
# Where Open MPI and PMIx find their parts. $lib is the folder above this file's.
OPAL_PREFIX=$lib/openmpi OPAL_BINDIR=$OPAL_PREFIX/bin OPAL_LIBDIR=$lib/libraries OPAL_PKGLIBDIR=$OPAL_PREFIX/components
OPAL_PKGDATADIR=$OPAL_PREFIX/share OPAL_SYSCONFDIR=$OPAL_PREFIX/etc
PMIX_PREFIX=$OPAL_PREFIX PMIX_LIBDIR=$lib/libraries PMIX_PKGLIBDIR=$OPAL_PREFIX/pmix PMIX_PKGDATADIR=$OPAL_PREFIX/share
PATH=$OPAL_PREFIX/bin:$PATH
OMPI_MCA_orte_launch_agent=${OMPI_MCA_orte_launch_agent:-$OPAL_PREFIX/bin/orted}
export OPAL_PREFIX OPAL_BINDIR OPAL_LIBDIR OPAL_PKGLIBDIR OPAL_PKGDATADIR OPAL_SYSCONFDIR
export PMIX_PREFIX PMIX_LIBDIR PMIX_PKGLIBDIR PMIX_PKGDATADIR PATH OMPI_MCA_orte_launch_agent
# mpirun looks for ssh even where no other host is asked for, and stops without.
if [ -z "$OMPI_MCA_plm$OMPI_MCA_plm_rsh_agent" ] && ! command -v ssh >/dev/null && ! command -v rsh >/dev/null; then
  OMPI_MCA_plm=isolated
  export OMPI_MCA_plm
fi
END
  write_wrapper "$mpi/bin/mpirun" ../.. openmpi/programs/mpirun
  write_wrapper "$mpi/bin/orted" ../.. openmpi/programs/orted
}

# Redistribution asks for the licenses of what is in the archive.
copy_licenses() {
  local file package
  mkdir -p "$2"
  for file in "$1"/libraries/* $(command -v orterun); do
    package=$(dpkg-query -S "*/$(basename "$(readlink -f "$file")")" 2>/dev/null | sed -nE '1s/^([^:,]+).*/\1/p')
    [[ -z $package ]] || cp -L "/usr/share/doc/$package/copyright" "$2/$package"
  done
}

make_tar() {
  local name=nought-$version-linux-$(uname -m) folder lib file
  folder=$build/$name lib=$folder/lib/nought
  rm -rf "$build"/nought-*
  NOUGHT_PACKAGE="archive $name" cmake --install "$build" --component program --prefix "$folder" --strip >/dev/null
  mkdir -p "$lib/libraries"
  mv "$folder/bin/nought" "$lib/nought"
  copy_openmpi "$lib"
  for file in $(libraries_of "$lib/nought" "$lib"/openmpi/*/*.so "$lib"/openmpi/programs/*); do
    cp -L "$file" "$lib/libraries/$(basename "$file")"
  done
  strip --strip-unneeded "$lib"/libraries/*
  patchelf --force-rpath --set-rpath "\$ORIGIN" "$lib"/libraries/*
  patchelf --force-rpath --set-rpath "\$ORIGIN/libraries" "$lib/nought"
  patchelf --force-rpath --set-rpath "\$ORIGIN/../../libraries" "$lib"/openmpi/*/*.so "$lib"/openmpi/programs/*
  write_wrapper "$folder/bin/nought" ../lib/nought nought
  copy_licenses "$lib" "$folder/share/doc/licenses"
  cp README.md LICENSE CHANGELOG.md "$folder/"
  cp -r docs "$folder/share/doc/nought/"
  cp -r examples "$folder/share/doc/nought/"
  tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner -C "$build" -c "$name" |
    xz -6 --threads=1 >"$folder.tar.xz"
  ls "$folder.tar.xz"
}

for kind in "$@"; do "make_$kind"; done
