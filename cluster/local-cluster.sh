#!/usr/bin/env bash
# A Ray cluster on this one machine, on loopback and behind a token: a head and some workers, each with a raylet of its own.
#
#   cluster/local-cluster.sh start [WORKERS]   default 2 workers; prints its addresses and the next commands
#   eval "$(cluster/local-cluster.sh env)"     lets this shell reach it by its addresses and the path of its token
#   cluster/local-cluster.sh status            lists the nodes; exits with 1 if none runs
#   cluster/local-cluster.sh stop              ends its own processes and no others
#
# Variables: HEAD_CPUS (default 0: trials run on workers), WORKER_CPUS (default: this process's cores, shared out),
# FIRST_PORT (default: a free block above 21000), START_LIMIT (default: 180 s for each node), XDG_STATE_HOME. `ray` must be
# on PATH. Linux.
set -euo pipefail
umask 077  # only this user may read the token

STATE=${XDG_STATE_HOME:-$HOME/.local/state}/tune_sentcl/cluster
PORTS_A_NODE=200 SERVICES=11  # ports of a node: eleven for its services, the others for its workers
START_LIMIT=${START_LIMIT:-180} STOP_LIMIT=20 # seconds

say() { printf '%s\n' "$*"; }
fail() { printf 'local-cluster: %s\n' "$*" >&2; exit 1; }

# A process is ours if its number and its time of birth equal the recorded ones: the system reuses numbers.
born() { awk '{sub(/.*\) /, ""); print $20}' "/proc/$1/stat" 2>/dev/null || true; }
node_runs() { # FILE
  local pid birth
  read -r pid birth <"$1" && [[ -n $birth && $(born "$pid") == "$birth" ]]
}
node_files() { find "$STATE" -name '*.pid' 2>/dev/null | sort; }
running() { local file; for file in $(node_files); do if node_runs "$file"; then return 0; fi; done; return 1; }

# Every process that a node started is of its session. So are those that outlive a killed parent.
members() { pgrep --session "$1" || true; }

free_block() { # NODES -> first port of a block in which all service ports are free
  python - "$1" "$PORTS_A_NODE" "$SERVICES" <<'PYTHON'
import os
import socket
import sys

nodes, a_node, services = map(int, sys.argv[1:])


def free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


# Ray gives out ports below 21000 elsewhere. The system gives ports from 32768 on to clients. Each process begins with
# another block, so that two clusters that start at once take different ports.
blocks = range(21000, 32768 - nodes * a_node, a_node)
for block in range(len(blocks)):
    first = blocks[(os.getpid() * 7 + block) % len(blocks)]
    if all(free(first + node * a_node + port) for node in range(nodes) for port in range(services)):
        print(first)
        break
else:
    sys.exit("local-cluster: no free block of ports; give FIRST_PORT")
PYTHON
}

# `ray start --node-ip-address=127.0.0.1` takes the machine's own address instead, and then listens on every net. The
# variable keeps all processes of a node, and drivers (see `env`), at the given address. At 0 `ray start` also refuses to
# add a node, so this process alone gets the same effect by a function.
RAY_START='
import os
import sys
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
from ray._private import ray_constants, services
ray_constants.ENABLE_RAY_CLUSTER = True
services.resolve_ip_for_localhost = lambda host: host
from ray.scripts.scripts import main
sys.exit(main())
'

start_node() { # NAME FIRST_PORT ARGUMENTS... : starts one node, and waits until it says that it is up
  local name=$1 first=$2; shift 2
  local log=$STATE/$name.log pid end=$((SECONDS + START_LIMIT))
  # Each node has its own folder: in a shared one, nodes would unpack a job's files over each other's copies.
  : >"$log"  # for grep, which may be quicker than the node
  setsid python -c "$RAY_START" start --block --disable-usage-stats --node-ip-address=127.0.0.1 \
    --temp-dir="$(<"$STATE/temp")/$name" --object-store-memory=200000000 \
    --node-manager-port=$((first + 1)) --object-manager-port=$((first + 2)) \
    --dashboard-agent-listen-port=$((first + 3)) --dashboard-agent-grpc-port=$((first + 4)) \
    --metrics-export-port=$((first + 5)) --runtime-env-agent-port=$((first + 6)) \
    --min-worker-port=$((first + SERVICES)) --max-worker-port=$((first + PORTS_A_NODE - 1)) \
    "$@" >"$log" 2>&1 </dev/null &
  pid=$!
  disown $pid  # else bash prints its whole command when stop kills it
  say "$pid $(born $pid)" >"$STATE/$name.pid"
  until grep --quiet 'Ray runtime started' "$log"; do
    if ((SECONDS > end)); then
      stop >&2
      fail "$name was not up in $START_LIMIT s: run start again when the machine has less to do"
    fi
    if ! kill -0 $pid 2>/dev/null; then
      tail -n 20 "$log" >&2
      stop >&2
      fail "$name did not start"
    fi
    sleep 0.1
  done
}

start() {
  local workers=${1:-2} first cores gpus share name index parent
  [[ $workers =~ ^[0-9]+$ ]] || fail "WORKERS is a number, not $workers"
  command -v ray >/dev/null || fail "no ray on PATH: activate the environment of tune-sentcl first"
  python -c 'import grpc, ray.dashboard.optional_deps' 2>/dev/null ||
    fail "this Ray lacks its dashboard and job server: pip install 'tune-sentcl[cluster]'"
  if running; then fail "a cluster of this user runs already (status, stop)"; fi
  stop >/dev/null  # ends the rest of a crashed cluster
  mkdir -p "$STATE"
  parent=${RAY_TMPDIR:-${TMPDIR:-/tmp}}
  # The path of a socket has at most 107 bytes. Ray adds up to 85 to this one, and its dashboard opens sockets in TMPDIR.
  ((${#parent} <= 22)) || parent=/tmp
  export TMPDIR=$parent
  mktemp --directory "$parent/tsc-XXXXXX" >"$STATE/temp"
  python -c 'import secrets; print(secrets.token_hex(32), end="")' >"$STATE/auth_token"
  unset RAY_AUTH_TOKEN RAY_ADDRESS
  export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH=$STATE/auth_token
  first=${FIRST_PORT:-$(free_block $((workers + 1)))}
  cores=$(python -c 'from tune_sentcl.tuning.machine import usable_cores; print(usable_cores())')
  share=${WORKER_CPUS:-$((workers > 0 && cores > workers ? cores / workers : 1))}
  mapfile -t gpus < <(nvidia-smi --query-gpu=uuid --format=csv,noheader 2>/dev/null || true)

  # For these two ray start has no options, and their defaults are the same for every head on a machine.
  export AUTOSCALER_METRIC_PORT=$((first + 8)) DASHBOARD_METRIC_PORT=$((first + 9))
  say "127.0.0.1:$first" >"$STATE/address"
  say "http://127.0.0.1:$((first + 7))" >"$STATE/dashboard"
  CUDA_VISIBLE_DEVICES='' start_node head "$first" --head --port="$first" --num-cpus="${HEAD_CPUS:-0}" --num-gpus=0 \
    --dashboard-host=127.0.0.1 --dashboard-port=$((first + 7)) --ray-client-server-port=$((first + 10))
  for ((index = 1; index <= workers; index++)); do
    # One machine's GPUs are shared out; each is one worker's.
    name=$(IFS=,; own=(); for ((g = index - 1; g < ${#gpus[@]}; g += workers)); do own+=("${gpus[g]}"); done; echo "${own[*]-}")
    CUDA_VISIBLE_DEVICES=$name start_node "worker-$index" $((first + index * PORTS_A_NODE)) \
      --address="127.0.0.1:$first" --num-cpus="$share"
  done
  cat <<TEXT
A head and $workers workers of $share cores are up, on loopback only. In each shell that shall reach them:

  eval "\$($0 env)"

which exports RAY_AUTH_MODE=token, RAY_AUTH_TOKEN_PATH=$STATE/auth_token, RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0
(Ray would take 127.0.0.1 for another address), and the two addresses, so that these need none:

  tune-sentcl search smoke --study studies/smoke --address $(<"$STATE/address")
  tune-sentcl submit smoke --study $PWD/studies/smoke --address $(<"$STATE/dashboard") --follow

Dashboard: $(<"$STATE/dashboard"), which asks for the token. To end it: $0 stop
TEXT
}

environment() {
  running || fail "no cluster of this user runs"
  printf 'export RAY_AUTH_MODE=token RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0\n'
  printf 'export RAY_AUTH_TOKEN_PATH=%q RAY_ADDRESS=%q RAY_API_SERVER_ADDRESS=%q\n' \
    "$STATE/auth_token" "$(<"$STATE/address")" "$(<"$STATE/dashboard")"
}

status() {
  local file found=1
  for file in $(node_files); do
    if node_runs "$file"; then found=0; say "$(basename "$file" .pid): runs (process $(cut -d' ' -f1 "$file"))"
    else say "$(basename "$file" .pid): has ended"; fi
  done
  if ((found == 0)); then
    say "address: $(<"$STATE/address")"
    say "dashboard: $(<"$STATE/dashboard")"
    say "token: $STATE/auth_token"
  else
    say "no cluster of this user runs"
  fi
  return $found
}

stop() {
  local file pid sessions=() end
  for file in $(node_files | sort --reverse); do  # workers first, then the head
    read -r pid _ <"$file"
    # The system reuses no number whose session lives on, so the other processes of a crashed node are ours too.
    if node_runs "$file" || [[ -z $(born "$pid") && -n $(members "$pid") ]]; then
      sessions+=("$pid")
      kill -TERM "$pid" 2>/dev/null || true
    fi
  done
  end=$((SECONDS + STOP_LIMIT))
  for pid in "${sessions[@]-}"; do
    [[ -n $pid ]] || continue
    while [[ -n $(members "$pid") ]] && ((SECONDS < end)); do sleep 0.1; done
    for member in $(members "$pid"); do kill -KILL "$member" 2>/dev/null || true; done
  done
  if [[ -f $STATE/temp ]]; then rm -rf "$(<"$STATE/temp")"; fi
  rm -rf "$STATE"
  say "${#sessions[@]} nodes ended"
}

case ${1:-} in
  start) start "${2:-}" ;;
  env) environment ;;
  status) status ;;
  stop) stop ;;
  *) sed -n '2,11s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
