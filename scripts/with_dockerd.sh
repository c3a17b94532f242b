#!/usr/bin/env bash
# A Docker engine of its own for the length of a command: with_dockerd.sh SECONDS COMMAND...
#
# Needs root on Linux, not systemd. Installs Debian's docker.io (and busybox-static, of which tests make their
# image) where it is missing. Containers can have the network `none` or `host`; there is no bridge, since
# that would need the machine's firewall. The engine, its containers, mounts and files are gone afterwards, in
# whatever way the command ended. Exit: the command's; 97 if Docker cannot be installed, 98 if it does not
# start, 124 if it took longer than SECONDS.
set -uo pipefail

limit=${1:?usage: with_dockerd.sh SECONDS COMMAND...}
shift
[ $# -gt 0 ] || { echo "with_dockerd.sh: no command given" >&2; exit 2; }

give_up() { echo "with_dockerd.sh: $2" >&2; exit "$1"; }

if ! command -v dockerd >/dev/null || ! command -v busybox >/dev/null; then
  [ "$(id -u)" = 0 ] || give_up 97 "no dockerd or busybox here, and only root can install them"
  command -v apt-get >/dev/null || give_up 97 "no dockerd here, and no apt-get to install docker.io with"
  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
      apt-get install -y -qq --no-install-recommends docker.io busybox-static; } >/dev/null ||
    give_up 97 "cannot install docker.io and busybox-static"
fi
[ "$(id -u)" = 0 ] || give_up 98 "dockerd needs root"

root=$(mktemp -d "${TMPDIR:-/tmp}/dockerd-XXXXXX")
export DOCKER_HOST=unix://$root/docker.sock
options=(
  --host "$DOCKER_HOST" --data-root "$root/data" --exec-root "$root/exec" --pidfile "$root/pid"
  --bridge=none --iptables=false --ip6tables=false --ip-forward=false --ip-masq=false
  --storage-driver=overlay2 --exec-opt native.cgroupdriver=cgroupfs --default-ulimit nofile=1024:4096
  --log-level=warn
)
dockerd "${options[@]}" >"$root/log" 2>&1 &
engine=$!
command_pid=

clean_up() {
  trap - EXIT INT TERM HUP
  [ -z "$command_pid" ] || { kill "$command_pid" 2>/dev/null && wait "$command_pid" 2>/dev/null; }
  local left
  left=$(timeout 20 docker ps --all --quiet 2>/dev/null)
  # shellcheck disable=SC2086  # ids, one a word
  [ -z "$left" ] || timeout 60 docker rm --force $left >/dev/null 2>&1
  kill "$engine" 2>/dev/null  # never -9: shims and mounts would stay
  wait "$engine" 2>/dev/null
  awk -v root="$root/" 'index($2, root) == 1 { print $2 }' /proc/mounts | tac | xargs -r -n 1 umount 2>/dev/null
  rm -rf "$root"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

for _ in $(seq 150); do
  docker version >/dev/null 2>&1 && break
  kill -0 "$engine" 2>/dev/null || { tail -n 5 "$root/log" >&2; give_up 98 "dockerd does not start"; }
  sleep 0.1
done
docker version >/dev/null 2>&1 || give_up 98 "dockerd does not answer"

timeout --kill-after 10 "$limit" "$@" <&0 &  # or its input would be empty
command_pid=$!
wait "$command_pid"
code=$?
command_pid=
exit "$code"
