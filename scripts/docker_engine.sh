#!/usr/bin/env bash
# A Docker engine of our own for tests, beside the machine's: own data, socket and containerd, no bridge, no iptables.
#
#   scripts/docker_engine.sh start    starts it where it does not run, makes the test image, prints the socket
#   scripts/docker_engine.sh torch V  the same, and an image of the Python and torch in virtual environment V
#   scripts/docker_engine.sh stop     removes its containers, ends it; the image stays for the next start
#   scripts/docker_engine.sh kill     SIGKILL of the engine alone: its containers run on (live-restore)
#
# HF_TEST_ENGINE names its directory (default /var/tmp/heteroflow-engine). Needs root, dockerd and a static busybox.
set -euo pipefail

HOME_DIR="${HF_TEST_ENGINE:-/var/tmp/heteroflow-engine}"
SOCKET="$HOME_DIR/docker.sock"
PID_FILE="$HOME_DIR/docker.pid"
CONTAINERD_PID="$HOME_DIR/containerd.pid"
IMAGE="heteroflow-test:busybox"
TORCH_IMAGE="heteroflow-test:torch"
SELF="$(cd "$(dirname "$0")" && pwd)/$(basename "$0")"

_docker() { DOCKER_HOST="unix://$SOCKET" docker "$@"; }

_answers() { [ -S "$SOCKET" ] && timeout 5 env DOCKER_HOST="unix://$SOCKET" docker version >/dev/null 2>&1; }

_alive() {
    local pid
    pid="$(cat "$2" 2>/dev/null || true)"
    [ -n "$pid" ] && grep -qs "^Name:.$1$" "/proc/$pid/status" && ! grep -qs '^State:.[ZX]' "/proc/$pid/status" &&
        echo "$pid"
}

_pid() { _alive dockerd "$PID_FILE"; }

# A containerd of its own, as the distributions have it: it lives on when the engine is killed.
_containerd() {
    _alive containerd "$CONTAINERD_PID" >/dev/null && return
    mkdir -p "$HOME_DIR/containerd"
    printf 'version = 2\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n' >"$HOME_DIR/containerd/config.toml"
    setsid containerd --config "$HOME_DIR/containerd/config.toml" --address "$HOME_DIR/containerd/sock" \
        --root "$HOME_DIR/containerd/root" --state "$HOME_DIR/containerd/state" --log-level warn \
        </dev/null >>"$HOME_DIR/containerd.log" 2>&1 9>&- &
    echo $! >"$CONTAINERD_PID"
    for _ in $(seq 100); do
        [ -S "$HOME_DIR/containerd/sock" ] && return
        sleep 0.1
    done
}

_busybox_tree() {
    local tree="$1"
    mkdir -p "$tree"/{bin,tmp,etc,root,usr,lib,lib64,proc,sys,dev}
    cp "$(command -v busybox)" "$tree/bin/busybox"
    for applet in sh sleep cat echo true false kill ls seq dd id env mkdir touch wc head tail printf trap; do
        ln -sf busybox "$tree/bin/$applet"
    done
    echo 'root:x:0:0:root:/root:/bin/sh' >"$tree/etc/passwd"
    chmod 1777 "$tree/tmp"
}

# An image outlives the checkout that made it: it is taken again only where the same script made it from the same things.
_key() { cat "$SELF" "$@" | sha256sum | cut -c 1-16; }

_made_from() {
    [ "$(_docker image inspect --format '{{ index .Config.Labels "made-from" }}' "$1" 2>/dev/null)" = "$2" ]
}

_image() {
    local tree key
    key="$(_key "$(command -v busybox)")"
    _made_from "$IMAGE" "$key" && return
    tree="$(mktemp -d)"
    _busybox_tree "$tree"
    tar -C "$tree" -c . | _docker import --change 'ENV PATH=/bin:/usr/bin' --change 'WORKDIR /tmp' \
        --change "LABEL made-from=$key" - "$IMAGE" >/dev/null
    rm -rf "$tree"
}

# The interpreter, its packages and the libraries they are linked with: no distribution is needed, and no registry.
_torch_image() {
    local venv="$1" tree python version key
    python="$("$venv/bin/python" -c 'import sys; print(sys.base_prefix)')"
    version="$("$venv/bin/python" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')"
    key="$(_key "$venv/pyvenv.cfg" "$python/bin/$version" "$venv/lib/$version/site-packages/torch/version.py")"
    _made_from "$TORCH_IMAGE" "$key" && return
    tree="$(mktemp -d --tmpdir="$HOME_DIR" torch.XXXXXX)"
    _busybox_tree "$tree"
    mkdir -p "$tree/opt/python/bin" "$tree/opt/python/lib/$version"
    cp "$python/bin/$version" "$tree/opt/python/bin/"
    ln -s "$version" "$tree/opt/python/bin/python3"
    cp -a "$python"/lib/libpython3* "$tree/opt/python/lib/" 2>/dev/null || true
    tar -C "$python/lib/$version" --exclude=./test --exclude=./site-packages -c . |
        tar -C "$tree/opt/python/lib/$version" -x
    tar -C "$venv/lib/$version" --exclude=torch/include --exclude=torch/test -c site-packages |
        tar -C "$tree/opt/python/lib/$version" -x
    # Where Debian's own Python looks instead.
    mkdir -p "$tree/opt/python/lib/python3"
    ln -s "../$version/site-packages" "$tree/opt/python/lib/python3/dist-packages"
    printf '#!/opt/python/bin/python3\nfrom torch.distributed.run import main\nmain()\n' >"$tree/opt/python/bin/torchrun"
    chmod +x "$tree/opt/python/bin/torchrun"
    { echo "$python/bin/$version"; find "$tree/opt" -name '*.so*' -type f; } | xargs -n 40 ldd 2>/dev/null |
        awk '$2 == "=>" && $3 ~ /^\/(usr\/)?lib/ {print $3} $1 ~ /^\/lib.*ld-linux/ {print $1}' | sort -u |
        while read -r library; do
            mkdir -p "$tree/$(dirname "$library")"
            cp -L "$library" "$tree/$library"
        done
    tar -C "$tree" -c . | _docker import --change 'ENV PATH=/opt/python/bin:/bin:/usr/bin' \
        --change 'ENV LD_LIBRARY_PATH=/opt/python/lib' --change 'WORKDIR /tmp' \
        --change "LABEL made-from=$key" - "$TORCH_IMAGE" >/dev/null
    rm -rf "$tree"
}

start() {
    mkdir -p "$HOME_DIR"
    chmod 0700 "$HOME_DIR"
    exec 9>"$HOME_DIR/lock"
    flock 9
    if ! _answers; then
        if ! _pid >/dev/null; then
            rm -f "$PID_FILE"
            _containerd
            # 9>&-: the engine must not hold the lock of this script.
            setsid dockerd --data-root "$HOME_DIR/data" --exec-root "$HOME_DIR/run" --pidfile "$PID_FILE" \
                --host "unix://$SOCKET" --containerd "$HOME_DIR/containerd/sock" --bridge none --iptables=false --ip-masq=false --live-restore \
                --log-level warn </dev/null >>"$HOME_DIR/dockerd.log" 2>&1 9>&- &
        fi
        for _ in $(seq 150); do
            _answers && break
            sleep 0.2
        done
        _answers || { echo "no engine came up; see $HOME_DIR/dockerd.log" >&2; tail -5 "$HOME_DIR/dockerd.log" >&2; exit 1; }
    fi
    _image
    echo "$SOCKET"
}

_end() {
    local pid
    pid="$(_pid)" || return 0
    kill -"$1" "$pid"
    for _ in $(seq 150); do
        _pid >/dev/null || return 0
        sleep 0.1
    done
    echo "the engine does not end" >&2
    return 1
}

stop() {
    local pid left
    if _answers; then
        left="$(_docker ps -aq)"
        [ -z "$left" ] || _docker rm -f $left >/dev/null
    fi
    _end TERM
    # An engine that keeps containers over its restarts keeps its mounts too; here nothing is left in them.
    awk -v below="$HOME_DIR/" 'index($2, below) == 1 {print $2}' /proc/mounts | sort -r | while read -r place; do
        umount "$place"
    done
    pid="$(_alive containerd "$CONTAINERD_PID")" || return 0
    kill "$pid"
}

case "${1:-}" in
    start) start ;;
    torch)
        start
        exec 9>"$HOME_DIR/lock"
        flock 9
        _torch_image "${2:?the virtual environment with torch}"
        ;;
    stop) stop ;;
    kill) _end KILL ;;
    *) sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
