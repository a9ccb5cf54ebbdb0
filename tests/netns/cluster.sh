#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# cluster.sh - hosts h1..hN on one machine, for tests and benchmarks that need a real network between nodes.
#
# A host is a set of namespaces: network (own address, lo and ports), UTS (own name), IPC, mount (own /dev/shm
# and /etc/hosts) and PID, with an sshd of its own on port 22; all hosts hang on one bridge. Network namespaces
# alone would not do: MPI libraries would find the shared memory of the machine and bypass the wire. TMPDIR is a
# host's own too: process numbers begin anew on each host, and launchers name their sockets after them.
#
#   cluster.sh up [N]                      N hosts (default 4) at 10.78.0.11, .12, ...; this machine is 10.78.0.1
#   cluster.sh up N RATE DELAY             the same with links of a rate and a delay (100mbit 200us) by wire.c, which
#                                          needs a C compiler; these links cannot be shaped or pulled
#   cluster.sh shape RATE [BURST] [HOST..] limit both directions of the links, as tc tbf understands it: 1gbit
#   cluster.sh unshape                     no limits any more
#   cluster.sh linkdown HOST | linkup HOST pull, plug the cable of one host
#   cluster.sh crash HOST                  kill everything on one host at once
#   cluster.sh exec HOST COMMAND...        run in a host, in this directory
#   cluster.sh env                         exports for mpirun: which agent starts processes on the other hosts
#   cluster.sh down                        all of it away
#
# Needs root, and from the distribution iproute2, openssh-server and, to measure the links, iperf3.
set -eu

FOLDER=${CLUSTER_FOLDER:-/tmp/hpccoll-cluster}
BRIDGE=hpccoll0
SUBNET=10.78.0

address() { echo "$SUBNET.$((10 + ${1#h}))"; }
init_of() { cat "$FOLDER/pid/$1"; }
hosts() { ls "$FOLDER/pid" 2>/dev/null || true; }

# Keys and configuration of the sshds and of the ssh that mpirun uses.
write_ssh() {
    local key
    for key in id host; do
        [ -f "$FOLDER/ssh/$key" ] || ssh-keygen -q -t ed25519 -N '' -f "$FOLDER/ssh/$key"
    done
    cp "$FOLDER/ssh/id.pub" "$FOLDER/ssh/authorized_keys"
    cat > "$FOLDER/ssh/sshd_config" <<END
Port 22
HostKey $FOLDER/ssh/host
AuthorizedKeysFile $FOLDER/ssh/authorized_keys
PermitRootLogin prohibit-password
PasswordAuthentication no
UsePAM no
StrictModes no
PidFile none
MaxStartups 100:30:200
MaxSessions 100
AcceptEnv *
END
    printf 'Host h* %s.*\n  User root\n  IdentityFile %s\n  StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n  LogLevel ERROR\n' \
        "$SUBNET" "$FOLDER/ssh/id" > "$FOLDER/ssh/config"
    { grep -v "^$SUBNET\." /etc/hosts || true; for h in "$@"; do echo "$(address "$h") $h"; done; } > "$FOLDER/hosts"
    for h in "$@"; do printf 'Host %s\n  HostName %s\n' "$h" "$(address "$h")" >> "$FOLDER/ssh/config"; done
    printf '#!/bin/sh\nexec ssh -F %s "$@"\n' "$FOLDER/ssh/config" > "$FOLDER/agent"
    chmod +x "$FOLDER/agent"
}

# A network namespace whose eth0 hangs on the bridge, or is one end of wire.c.
add_host() {
    local h=$1 wired=$2
    ip netns add "$h"
    if [ -n "$wired" ]; then
        ip -n "$h" tuntap add dev eth0 mode tap
    else
        ip link add "v$h" type veth peer name eth0 netns "$h"
        ip link set "v$h" master "$BRIDGE" up
    fi
    ip -n "$h" link set lo up
    ip -n "$h" addr add "$(address "$h")/24" dev eth0
    ip -n "$h" link set eth0 up
}

# Links of a rate and a delay between this machine and hosts.
start_wire() {
    local rate=$1 delay=$2 h
    shift 2
    cc -D_GNU_SOURCE -O2 -o "$FOLDER/wire" "$(dirname "$0")/wire.c"
    for h in "$@"; do ip netns exec "$h" tc qdisc replace dev eth0 root tbf rate "$rate" burst 4kb latency 1s; done
    rate=$(numfmt --from=si "$(tr kmg KMG <<< "${rate%bit}")")
    case $delay in
        *us) delay=${delay%us} ;;
        *ms) delay=${delay%ms}000 ;;
        *) echo "cluster.sh: a delay such as 200us or 1ms, not $delay" >&2; exit 2 ;;
    esac
    setsid "$FOLDER/wire" "$rate" "$delay" ":$BRIDGE" "${@/%/:eth0}" > "$FOLDER/log/wire" 2>&1 < /dev/null &
    echo $! > "$FOLDER/wire.pid"
}

start_host() {
    local h=$1 outer inner=""
    setsid ip netns exec "$h" \
        unshare --uts --ipc --mount --pid --fork --kill-child --mount-proc --propagation private sh -c "
            hostname $h
            mount -t tmpfs -o size=1g tmpfs /dev/shm
            mount -t tmpfs tmpfs $FOLDER/tmp
            mount --bind $FOLDER/hosts /etc/hosts
            exec /usr/sbin/sshd -D -e -f $FOLDER/ssh/sshd_config" > "$FOLDER/log/$h" 2>&1 < /dev/null &
    outer=$!
    for _ in $(seq 1500); do
        inner=$(pgrep -P "$outer" || true)
        [ -n "$inner" ] && break
        sleep 0.02
    done
    echo "$inner" > "$FOLDER/pid/$h"
    for _ in $(seq 600); do
        (exec 3<> "/dev/tcp/$(address "$h")/22") 2> /dev/null && return
        sleep 0.05
    done
    echo "cluster.sh: no sshd on $h after 30 s: see $FOLDER/log/$h" >&2
    exit 1
}

up() {
    local names h rate=${2:-} delay=${3:-}
    [ -z "$(hosts)" ] || { echo "cluster.sh: hosts are up already: cluster.sh down" >&2; exit 1; }
    names=$(seq -f 'h%.0f' "${1:-4}")
    mkdir -p "$FOLDER"/{pid,ssh,log,tmp} /run/sshd
    chmod 700 "$FOLDER/ssh"
    # shellcheck disable=SC2086  # a list
    write_ssh $names
    if [ -n "$delay" ]; then ip tuntap add dev "$BRIDGE" mode tap; else ip link add "$BRIDGE" type bridge; fi
    ip addr add "$SUBNET.1/24" dev "$BRIDGE"
    ip link set "$BRIDGE" up
    for h in $names; do add_host "$h" "$delay"; done
    # shellcheck disable=SC2086
    [ -z "$delay" ] || start_wire "$rate" "$delay" $names
    for h in $names; do start_host "$h"; done
}

shape() {
    local rate=$1 burst=${2:-256kb} h
    shift $(($# < 2 ? $# : 2))
    for h in ${*:-$(hosts)}; do
        tc qdisc replace dev "v$h" root tbf rate "$rate" burst "$burst" latency "${LATENCY:-50ms}"
        ip netns exec "$h" tc qdisc replace dev eth0 root tbf rate "$rate" burst "$burst" latency "${LATENCY:-50ms}"
    done
}

unshape() {
    local h
    for h in $(hosts); do
        tc qdisc del dev "v$h" root 2> /dev/null || true
        ip netns exec "$h" tc qdisc del dev eth0 root 2> /dev/null || true
    done
}

down() {
    local h
    for h in $(hosts); do
        kill -9 "$(init_of "$h")" 2> /dev/null || true # the host's init: everything there goes with it
        ip netns del "$h" 2> /dev/null || true
        ip link del "v$h" 2> /dev/null || true
        rm -f "$FOLDER/pid/$h"
    done
    [ ! -f "$FOLDER/wire.pid" ] || kill -9 "$(cat "$FOLDER/wire.pid")" 2> /dev/null || true
    rm -f "$FOLDER/wire.pid"
    ip link del "$BRIDGE" 2> /dev/null || true
}

print_env() {
    cat <<END
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PRTE_ALLOW_RUN_AS_ROOT=1
export TMPDIR=$FOLDER/tmp PRTE_MCA_prte_local_tmpdir_base=$FOLDER/tmp PRTE_MCA_prte_remote_tmpdir_base=$FOLDER/tmp
export OMPI_MCA_plm_rsh_agent=$FOLDER/agent PRTE_MCA_plm_ssh_agent=$FOLDER/agent
export HYDRA_LAUNCHER=ssh HYDRA_LAUNCHER_EXEC=$FOLDER/agent
END
}

command=${1:-}
shift || true
case $command in
    up | down | shape | unshape) "$command" "$@" ;;
    linkdown) ip link set "v$1" down ;;
    linkup) ip link set "v$1" up ;;
    crash) kill -9 "$(init_of "$1")" ;;
    exec)
        host=$1
        shift
        exec nsenter -t "$(init_of "$host")" -n -u -i -m -p -- sh -c 'cd "$0"; exec "$@"' "$PWD" "$@"
        ;;
    env) print_env ;;
    *)
        sed -n '3,22s/^# \{0,1\}//p' "$0"
        exit 2
        ;;
esac
