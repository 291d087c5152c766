#!/usr/bin/env bash
# Runs a command on the first of N hosts that are namespaces of this machine: scripts/hosts.sh N [--slots S] COMMAND...
#
# Each host h1 to hN has its own name, network, /dev/shm and System V memory; a bridge joins them (10.199.7.0/24). The
# command finds $HOSTS_FILE, a host file with S slots on each (default 2), for --hostfile; mpirun reaches the hosts by an
# agent in place of ssh. While it runs, in another shell or in the command itself:
#
#   $HOSTS_DIR/cut h2           the link of h2 is cut; $HOSTS_DIR/join h2 puts it together again
#   $HOSTS_DIR/slow h2 100mbit  its link sends no faster (tc's token bucket); a third word, 5ms, delays it (netem)
#   $HOSTS_DIR/lossy h2 20      it loses 20% of what it sends (nftables)
#   $HOSTS_DIR/kill h2          all processes of h2 are killed; $HOSTS_DIR/processes h2 lists them
#
# Needs root, iproute2 and util-linux; nft for lossy. Exit code: that of the command. Nothing is left of the hosts.
set -euo pipefail
usage() {
  sed -n '2,15s/^# \{0,1\}//p' "$0" >&2
  exit 2
}
count=${1:-}
[[ $count =~ ^[1-9][0-9]?$ ]] || usage
shift
slots=2
if [[ ${1:-} == --slots ]]; then slots=${2:?--slots needs a number} && shift 2; fi
(($#)) || usage
fail() {
  echo "hosts: error: $*" >&2
  exit 1
}
((EUID == 0)) || fail "network namespaces need root: run it with sudo"
for tool in ip unshare nsenter; do command -v "$tool" >/dev/null || fail "$tool is not installed (apt-get install iproute2 util-linux)"; done

dir=$(mktemp -d) tag=n$$
clean() {
  for ((i = 1; i <= count; ++i)); do
    ip netns pids "$tag-h$i" 2>/dev/null | xargs -r kill -9 2>/dev/null || true
    ip netns del "$tag-h$i" 2>/dev/null || true
    ip link del "$tag-v$i" 2>/dev/null || true
  done
  ip link del "$tag-br" 2>/dev/null || true
  rm -rf "$dir"
}
trap clean EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

ip link add "$tag-br" type bridge
ip link set "$tag-br" up
for ((i = 1; i <= count; ++i)); do
  ip netns add "$tag-h$i"
  ip link add "$tag-v$i" type veth peer name eth0 netns "$tag-h$i"
  ip link set "$tag-v$i" master "$tag-br" up
  ip -n "$tag-h$i" addr add "10.199.7.$i/24" dev eth0
  ip -n "$tag-h$i" link set eth0 up
  ip -n "$tag-h$i" link set lo up
  # A name of its own and a /dev/shm of its own: Open MPI names the memory that ranks share by the host's name.
  setsid ip netns exec "$tag-h$i" unshare --uts --ipc --mount bash -c "hostname h$i; mount -t tmpfs tmpfs /dev/shm
    echo \$\$ >'$dir/h$i.new'; mv '$dir/h$i.new' '$dir/h$i.pid'; exec sleep infinity" </dev/null >/dev/null 2>&1 &
  disown
  until [[ -e $dir/h$i.pid ]]; do sleep 0.01; done
  echo "h$i slots=$slots" >>"$dir/hosts"
done

tool() { # NAME: a script of it from stdin; $h is the host's number
  { printf '#!/usr/bin/env bash\nset -euo pipefail\nh=${1#h} pid=$(cat "%s/$1.pid") enter="nsenter --net=/proc/$pid/ns/net"\n' "$dir" && cat; } >"$dir/$1"
  chmod +x "$dir/$1"
}
# The ends of links on the bridge are seen where this script runs, which may not be where a tool is called.
tool cut <<<"nsenter --net=/proc/$$/ns/net ip link set $tag-v\$h down"
tool join <<<"nsenter --net=/proc/$$/ns/net ip link set $tag-v\$h up"
tool slow <<<"\$enter tc qdisc replace dev eth0 root handle 1: tbf rate \"\$2\" burst 64kb latency 200ms
[[ -z \${3:-} ]] || \$enter tc qdisc replace dev eth0 parent 1: handle 10: netem delay \"\$3\""
tool lossy <<<"\$enter nft \"add table ip loss; add chain ip loss out { type filter hook output priority 0; }; add rule ip loss out numgen random mod 100 < \$2 drop\""
tool processes <<'TOOL'
find /proc/[0-9]*/ns/net -printf '%l %p\n' 2>/dev/null |
  awk -v net="$(readlink "/proc/$pid/ns/net")" -v keep="$pid" -F'[ /]' '$1 == net && $4 != keep { print $4 }'
TOOL
tool kill <<<"$dir/processes h\$h | xargs -r kill -9"
cat >"$dir/agent" <<AGENT
#!/usr/bin/env bash
while [[ \$1 == -* ]]; do shift; done
host=\$1
shift
[[ -e $dir/\$host.pid ]] || { echo "agent: there is no host \$host" >&2; exit 255; }
exec nsenter -t "\$(cat "$dir/\$host.pid")" --net --uts --ipc --mount -- bash -c "\$*"
AGENT
chmod +x "$dir/agent"

export HOSTS_DIR=$dir HOSTS_FILE=$dir/hosts OMPI_MCA_plm_rsh_agent=$dir/agent
export OMPI_MCA_btl_tcp_if_include=10.199.7.0/24 OMPI_MCA_oob_tcp_if_include=10.199.7.0/24
code=0
nsenter -t "$(cat "$dir/h1.pid")" --net --uts --ipc --mount --wd="$PWD" -- "$@" || code=$?
exit "$code"
