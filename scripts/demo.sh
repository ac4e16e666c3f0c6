#!/usr/bin/env bash
# demo.sh: starts the embedded cluster on a free port of the loopback, streams one completion, replays the small trace
# of deploy/, shows where the time went, and stops all processes. Exits with 0 if all steps worked. Every wait has a
# time limit. Processes that the script started are ended by process id.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/common.sh

READY_S=60
work=$(mktemp -d)
server=

stop() {
    local left=100
    if [[ -n $server ]]; then
        kill "$server" 2>/dev/null || true
        while kill -0 "$server" 2>/dev/null && ((left-- > 0)); do sleep 0.1; done
        kill -9 "$server" 2>/dev/null || true
    fi
    rm -rf "$work"
}
trap stop EXIT
trap 'exit 130' INT TERM

# No process listens on the port now. Two demos that start at the same moment take different random ports.
free_port() {
    local port
    for _ in {1..50}; do
        port=$((20000 + RANDOM % 20000))
        (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || {
            printf '%s\n' "$port"
            return
        }
    done
    fail "no free port between 20000 and 40000"
}

port=$(free_port)
url=http://127.0.0.1:$port
say "starting one prompt machine and one token machine behind $url"
# On one computer a request is usually not split (docs/scheduling.md#one-machine-or-two); here it is, for show.
build/cleave serve deploy/embedded.json --listen "127.0.0.1:$port" --set scheduler/placement=split >"$work/serve.log" 2>&1 </dev/null &
server=$!
for ((i = 0; ; i++)); do
    curl -sf --noproxy '*' -o /dev/null "$url/health" && break
    if ((i >= READY_S * 10)) || ! kill -0 "$server" 2>/dev/null; then
        cat "$work/serve.log" >&2
        fail "the cluster did not get ready"
    fi
    sleep 0.1
done

say "one completion, streamed"
python3 scripts/demo-show.py stream "$url" "The three primary colours are"
say "a slice of a trace: 20 requests in 10 seconds, open loop"
build/cleave replay deploy/demo-trace.csv --url "$url" --timeout 60
say "where the time went"
python3 scripts/demo-show.py phases "$url"
