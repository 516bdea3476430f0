#!/usr/bin/env bash
# The package with its extra onnx-client, without torch, in a Debian arm64 root, under qemu-user: installed by pip
# from the index's aarch64 wheels, it classifies handwritten digits with a tier-1 model and trains a round as several
# Arm cores. Its answers and parameters are compared with this machine's. `make arm64` runs it; README.md has its
# output.
#
#   ARM64_ROOT      the folder of the root, which is kept (default: .arm64 in the repository; 1 GB)
#   DEBIAN_MIRROR   default: the mirror in apt's configuration, else deb.debian.org
#   DEBIAN_SUITE    bookworm (Python 3.11, the default) or trixie (Python 3.13)
#   ARM64_CPUS      the cores to emulate (default: "cortex-a53 cortex-a57 cortex-a72 cortex-a76")
#   ARM64_NETWORKS  the networks and tiers to train a round of (default: "mlp/1 two-nn/1 cnn/1 cnn-batch/1")
#   ARM64_TRY       other wheels to try on each core, without a model: "torch==2.9.1 onnxruntime==1.21.0"
#   EDGE_PYTHON     a Python with edge-federation[server] and pip (default: .venv/bin/python)
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
repository=$(cd "$here/../.." && pwd)
root=${ARM64_ROOT:-$repository/.arm64}
suite=${DEBIAN_SUITE:-bookworm}
cpus=${ARM64_CPUS:-cortex-a53 cortex-a57 cortex-a72 cortex-a76}
networks=${ARM64_NETWORKS:-mlp/1 two-nn/1 cnn/1 cnn-batch/1}
python=${EDGE_PYTHON:-$repository/.venv/bin/python}
target=$root/$suite
helper=

say() { echo "arm64: $*"; }
not_here() { say "not run: $1"; say "remedy: $2"; exit 0; }
trap '[ -z "$helper" ] || kill "$helper" 2>/dev/null || true' EXIT

qemu=
check_machine() {
    [ "$(id -u)" = 0 ] || not_here "debootstrap and chroot need root" "sudo make arm64, or in a container of your own"
    command -v debootstrap >/dev/null || not_here "there is no debootstrap" "apt-get install debootstrap"
    [ -x "$python" ] || not_here "there is no $python" "make test makes it, or name another with EDGE_PYTHON"
    [ "$(uname -m)" != aarch64 ] || return 0
    qemu=$(command -v qemu-aarch64-static || command -v qemu-aarch64) ||
        not_here "there is no qemu-aarch64" "apt-get install qemu-user-static (Debian 12) or qemu-user (13)"
}

mirror() {
    local found
    found=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/*.sources /etc/apt/sources.list.d/*.list 2>/dev/null |
        sed -nE 's/^(URIs:|deb( \[[^]]*\])?) +(https?:\S+debian\/?)( .*)?$/\3/p' | head -n 1)
    echo "${DEBIAN_MIRROR:-${found:-http://deb.debian.org/debian}}"
}

# --- the root: fetched here, configured under emulation ---------------------------------------------------------
first_stage() {
    [ ! -e "$target/first-stage-is-done" ] || return 0
    local from
    from=$(mirror)
    say "fetching Debian $suite for arm64 from $from into $target"
    rm -rf --one-file-system "$target"
    mkdir -p "$target"
    debootstrap --arch=arm64 --foreign --variant=minbase --include=python3,python3-venv "$suite" "$target" "$from" \
        >"$root/first-stage.log" || not_here "debootstrap failed: $root/first-stage.log" "name a mirror: DEBIAN_MIRROR"
    # In some containers it is a link to itself.
    rm -f "$target/proc"
    mkdir -p "$target/proc"
    touch "$target/first-stage-is-done"
}

second_stage() {
    [ ! -e "$target/second-stage-is-done" ] || return 0
    say "configuring its packages under emulation: some minutes"
    # `lxc` says that device nodes cannot be made here.
    inside container=lxc /debootstrap/debootstrap --second-stage >"$root/second-stage.log" 2>&1 ||
        { say "failed: $root/second-stage.log"; exit 1; }
    touch "$target/second-stage-is-done"
}

# Not earlier: the second stage creates its own devices there.
bind_devices() { "${enter[@]}" mount --rbind /dev "$target/dev"; }

# --- how emulated programs run ---------------------------------------------------------------------------------------
# With qemu registered in the kernel, as Debian's package does where systemd runs, in a mount namespace of our own.
# Otherwise also in a user namespace, with a private registration: Linux 6.7 or newer.
registered() { [ -z "$qemu" ] || grep -qs enabled /proc/sys/fs/binfmt_misc/qemu-aarch64; }

open_namespace() {
    local spaces="--mount"
    registered || spaces="--user --mount"
    # shellcheck disable=SC2086
    unshare $spaces sleep infinity &
    helper=$!
    until [ "$(readlink "/proc/$helper/ns/mnt")" != "$(readlink /proc/self/ns/mnt)" ]; do
        kill -0 "$helper" 2>/dev/null || not_here "namespaces are not allowed here" "run it outside of this container"
    done
    enter=(nsenter --target "$helper" --mount)
    if ! registered; then
        echo "0 0 4294967295" >"/proc/$helper/uid_map"
        echo "0 0 4294967295" >"/proc/$helper/gid_map"
        enter=(nsenter --target "$helper" --user --mount --setuid 0 --setgid 0)
        "${enter[@]}" "$here/register.sh" "$qemu" ||
            not_here "qemu is not registered, and this kernel lets nobody do so for himself (Linux 6.7)" \
                "apt-get install qemu-user-static where systemd runs; or mount binfmt_misc and run it again"
    fi
    "${enter[@]}" mount --rbind /proc "$target/proc"
}

inside() {
    local words=()
    while [[ ${1:-} == *=* ]]; do words+=("$1"); shift; done
    "${enter[@]}" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 HOME=/root "${words[@]}" chroot "$target" "$@"
}

# Wheels for the root's Python, by this machine's pip: under emulation it takes ten times as long.
fetch() {
    local version=$1 platforms=() glibc
    shift
    for glibc in 2_41 2_36 2_35 2_34 2_31 2_28 2_27 2_17; do platforms+=(--platform "manylinux_${glibc}_aarch64"); done
    "$python" -m pip --quiet download "${platforms[@]}" --platform manylinux2014_aarch64 --only-binary :all: \
        --python-version "$version" "$@"
}

# --- the package ------------------------------------------------------------------------------------------------
install_package() {
    local wheels=$target/wheels version
    version=$(inside /usr/bin/python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    say "fetching aarch64 wheels for Python $version"
    rm -rf "$wheels" "$root/source"
    # The time of the last commit makes the archive reproducible.
    SOURCE_DATE_EPOCH=$(git -C "$repository" log -1 --format=%ct 2>/dev/null || echo 315532800)
    export SOURCE_DATE_EPOCH
    mkdir -p "$wheels" "$root/source"
    # Built from a copy, because a build leaves folders in the source tree.
    (cd "$repository" && cp -r pyproject.toml README.md LICENSE schemas edge_client edge_server "$root/source")
    "$python" -m pip --quiet wheel --no-deps --wheel-dir "$wheels" "$root/source" 2>>"$root/pip.log"
    fetch "$version" --constraint "$repository/deploy/constraints.txt" --dest "$wheels" \
        "$(echo "$wheels"/edge_federation-*.whl)[onnx-client]" 2>>"$root/pip.log" ||
        not_here "pip finds no aarch64 wheels: $root/pip.log" "an index that has them: PIP_INDEX_URL"
    local these
    these=$(cd "$wheels" && printf '%s\n' *.whl && sha256sum edge_federation-*.whl)
    if [ "$these" != "$(cat "$target/installed" 2>/dev/null)" ]; then
        say "installing them under emulation"
        inside rm -rf /opt/edge
        inside /usr/bin/python3 -m venv /opt/edge
        inside /opt/edge/bin/pip --quiet --disable-pip-version-check install --no-index --find-links /wheels \
            "edge-federation[onnx-client]"
        echo "$these" >"$target/installed"
    fi
    inside /opt/edge/bin/pip --disable-pip-version-check list --format freeze | grep -Ei '^(edge|numpy|onnxruntime)'
    say "$(inside du -sm /opt/edge | cut -f 1) MB in /opt/edge; torch is $(
        inside /opt/edge/bin/python -c 'import torch' 2>/dev/null && echo there || echo not there)"
}

# --- the work ---------------------------------------------------------------------------------------------------
make_model() {
    say "training a tier-1 model here"
    rm -rf "$root/run"
    "$python" -m edge_server.cli.main simulate "$repository/edge_server/cli/demo.toml" --out "$root/run" >"$root/simulate.log"
    mkdir -p "$target/srv"
    cp "$root/run/onnx/tier-1.onnx" "$target/srv/"
    "$python" "$here/digits.py" "$target/srv/digits.npz"
}

classify() {
    local model="$target/srv/tier-1.onnx" failed=0
    "$python" -m edge_client.cli.main infer "$model" "$target/srv/digits.npz" --format json >"$root/here.json"
    say "$(uname -m), this machine: $("$python" "$here/compare.py" "$root/here.json")"
    [ -n "$qemu" ] || cpus=native
    for cpu in $cpus; do
        if inside QEMU_CPU="$cpu" /opt/edge/bin/edge-client infer /srv/tier-1.onnx /srv/digits.npz --format json \
            >"$root/$cpu.json" 2>"$root/$cpu.log"; then
            say "$(inside uname -m) as $cpu: $("$python" "$here/compare.py" "$root/$cpu.json" "$root/here.json")" || failed=1
        else
            say "$cpu: edge-client infer ended with $?: $(tail -n 1 "$root/$cpu.log")"
            failed=1
        fi
    done
    say "as a person sees it:"
    inside /opt/edge/bin/edge-client infer /srv/tier-1.onnx /srv/digits.npz 2>/dev/null | sed -n '1,4p;$p'
    return "$failed"
}

# A round of training there and here, of the same examples from the same start.
train() {
    local rounds="$target/srv/rounds" failed=0
    say "drawing the training steps here: $networks"
    rm -rf "$rounds"
    # shellcheck disable=SC2086
    "$python" "$here/write_rounds.py" "$rounds" $networks
    cp "$here/train_rounds.py" "$target/srv/"
    "$python" "$here/train_rounds.py" "$rounds" here >"$root/rounds.log"
    for cpu in $cpus; do
        if inside QEMU_CPU="$cpu" /opt/edge/bin/python /srv/train_rounds.py /srv/rounds "$cpu" >"$root/rounds-$cpu.log" 2>&1; then
            say "$cpu: $(tail -n 1 "$root/rounds-$cpu.log"); $("$python" "$here/compare_rounds.py" "$rounds" "$cpu" here)" || failed=1
        else
            say "$cpu: training ended with $?: $(tail -n 1 "$root/rounds-$cpu.log")"
            failed=1
        fi
    done
    return "$failed"
}

# Whether a wheel of another version imports and computes.
try_wheels() {
    local what cpu said wheel
    for what in ${ARM64_TRY:-}; do
        rm -rf "$target/try"
        mkdir -p "$target/try"
        fetch "$(inside /usr/bin/python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')" --no-deps \
            --dest "$target/try" "$what" filelock fsspec jinja2 markupsafe mpmath networkx sympy 2>>"$root/pip.log"
        for wheel in "$target"/try/*.whl; do "$python" -m zipfile -e "$wheel" "$target/try"; done
        cp "$here/begins.py" "$target/try/"
        for cpu in $cpus; do
            said=$(inside QEMU_CPU="$cpu" PYTHONPATH=/try /opt/edge/bin/python /try/begins.py "${what%%=*}" 2>&1) || said="ends with code $?"
            say "$what as $cpu: $(tail -n 1 <<<"$said")"
        done
    done
}

# A function, so that bash reads the whole file before it runs anything.
main() {
    check_machine
    mkdir -p "$root"
    export PYTHONPATH="$repository"
    first_stage
    open_namespace
    second_stage
    bind_devices
    install_package
    make_model
    classify
    train
    try_wheels
    say "all cores answered as this machine does"
}

main
exit
