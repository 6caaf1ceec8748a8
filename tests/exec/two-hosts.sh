#!/bin/sh
# two-hosts.sh RATE COMMAND...: runs COMMAND by mpirun, in EACH (default 1) ranks on each of two hosts,
# n1 and n2, which are network namespaces of this machine with a link of RATE (as tc writes it: 400mbit)
# between them. Leaves nothing behind. Exits with 77 and the reason where the machine does not allow
# this.
set -u
skip () { echo "$*" >&2; exit 77; }
each=${EACH-1} rate=$1
shift
test "$(id -u)" = 0 || skip "not root: no network namespaces"
for program in ip tc unshare nsenter mpirun timeout; do
  command -v $program >/dev/null || skip "no $program: apt-get install iproute2 openmpi-bin"
done
unshare --net --uts --mount true 2>/dev/null || skip "no network namespaces here"

work=$(mktemp -d)
hosts=
end () { for host in $hosts; do kill "$host" 2>/dev/null; done; wait; rm -rf "$work"; }
trap end EXIT
trap 'exit 1' HUP INT TERM

# A host is a process that sleeps in its own namespaces, which end with it.
printf '127.0.0.1 localhost\n10.77.0.1 n1\n10.77.0.2 n2\n' >"$work/hosts"
for n in 1 2; do
  unshare --net --uts --mount sh -c "mount --bind '$work/hosts' /etc/hosts && hostname n$n && : >'$work/up$n' &&
    exec sleep 600" 2>"$work/err$n" >/dev/null </dev/null &
  hosts="$hosts $!"
done
for n in 1 2; do
  until test -e "$work/up$n"; do
    for host in $hosts; do kill -0 "$host" 2>/dev/null || skip "no host of its own: $(cat "$work"/err*)"; done
  done
done
first=${hosts% *} second=${hosts##* }
first=${first# }
ip link add eth0 netns "$first" type veth peer name eth0 netns "$second" 2>"$work/err" ||
  skip "no link between namespaces: $(cat "$work/err")"
for n in 1 2; do
  host=$first
  test $n = 1 || host=$second
  nsenter -t "$host" -n sh -ec "ip link set lo up; ip addr add 10.77.0.$n/24 dev eth0; ip link set eth0 up
    tc qdisc add dev eth0 root tbf rate $rate burst 64kb latency 100ms" 2>"$work/err" ||
    skip "no link of $rate: $(cat "$work/err")"
done

# mpirun reaches the other host as by ssh. Messages of every size are sent eagerly: the test is to see
# the link's time, not that of a handshake that waits behind data.
cat >"$work/agent" <<END
#!/bin/sh
host=$second
test "\$1" != n1 || host=$first
shift
exec nsenter -t "\$host" -n -u -m sh -c "\$*"
END
chmod +x "$work/agent"
timeout -k 5 "${LIMIT-300}" nsenter -t "$first" -n -u -m mpirun --allow-run-as-root --mca plm_rsh_agent "$work/agent" \
  --mca btl_tcp_eager_limit 33554432 --host "n1:$each,n2:$each" -n $((2 * each)) --map-by "ppr:$each:node" "$@"
