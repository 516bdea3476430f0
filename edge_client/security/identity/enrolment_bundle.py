"""The files of an enrolled board: `client.toml`, certificates, a systemd unit, an install script."""

import json
from collections.abc import Mapping
from pathlib import Path

from edge_client.security.identity.private_files import private_folder, write_private

CERTIFICATE, KEY, CA, TRUST, CONFIG = "device.pem", "device.key", "ca.pem", "signing.pub", "client.toml"
UNIT, INSTALL = "edge-client.service", "install.sh"

# The same as deploy/systemd/edge-client.service, which a wheel does not bring.
_UNIT = """\
# A device that trains. `edge-server enroll` puts the same unit into each device's archive; its install.sh
# puts it into /etc/systemd/system.
[Unit]
Description=Edge federation: device
Wants=network-online.target
After=network-online.target
# A board is far away: never give up.
StartLimitIntervalSec=0

[Service]
Type=notify
NotifyAccess=main
# The state folder is stated here, so that edge-client-serve.service finds it.
ExecStart=/opt/edge-client/bin/edge-client run --config /etc/edge-client/client.toml --keep-trying \\
    --state-dir /var/lib/edge-client/state
User=edge-client
Group=edge-client
StateDirectory=edge-client
StateDirectoryMode=0700
WorkingDirectory=/var/lib/edge-client
# The certificate is renewed in its place.
ReadWritePaths=/etc/edge-client

# --- when it ends, hangs or grows
Restart=always
# Exit code 2: the configuration is wrong, and will be.
RestartPreventExitStatus=2
# From 5 s to 5 minutes in eight steps; systemd before 254 warns of the next two lines and stays with 5 s.
RestartSec=5
RestartSteps=8
RestartMaxDelaySec=5min
# The loop gives three signs in this time. Loading torch from an SD card holds them up for a minute.
WatchdogSec=3min
TimeoutStartSec=5min
TimeoutStopSec=30
# A board that swaps is lost to everybody.
MemoryMax=75%
MemorySwapMax=0
TasksMax=128
Nice=10
IOSchedulingClass=idle
OOMScoreAdjust=500
# Checks that an operator asks for run next to the client, and may be what memory is too short for.
OOMPolicy=continue

# --- what it may touch
NoNewPrivileges=yes
CapabilityBoundingSet=
AmbientCapabilities=
ProtectSystem=strict
ProtectHome=yes
ProtectClock=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectControlGroups=yes
ProtectProc=invisible
PrivateTmp=yes
PrivateDevices=yes
PrivateUsers=yes
RemoveIPC=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
KeyringMode=private
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged @mount @swap @reboot @debug @cpu-emulation @obsolete
SystemCallErrorNumber=EPERM
UMask=0077

[Install]
WantedBy=multi-user.target
"""

# The same as deploy/systemd/edge-client-launcher.conf.
LAUNCHER = """\
# A client that is updated over its connection: its launcher starts it. Install it as
# /etc/systemd/system/edge-client.service.d/launcher.conf; install.sh does that with UPDATES=1.
[Service]
# A client on trial is a child of the launcher.
NotifyAccess=all
ExecStart=
ExecStart=/var/lib/edge-client/client/launch run --config /etc/edge-client/client.toml --keep-trying \\
    --state-dir /var/lib/edge-client/state
"""

_INSTALL = """\
#!/bin/sh
# Installs this device's service; run it as root, also repeatedly:
#
#     sudo ./install.sh [PACKAGE]
#
# PACKAGE is what pip installs: a wheel, a folder or a URL. Without it this is a wheel in the folder of this
# script, or else the edge-client that is already installed. A client release (`edge-server client-release
# make --out`), named edge-client-NAME.tar, needs no network.
#
# UPDATES=1 lets releases of the client come over the connection to the broker.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=${DESTDIR:-}
config=$root/etc/edge-client
units=$root/etc/systemd/system
home=${EDGE_CLIENT_HOME:-/opt/edge-client}
python=${PYTHON:-python3}

say() { echo "install.sh: $*"; }
fail() { echo "install.sh: $*" >&2; exit 1; }

[ -n "$root" ] || [ "$(id -u)" = 0 ] || fail "this must run as root: sudo $0"
[ -f "$here/client.toml" ] || fail "client.toml is not in the folder of this script: unpack the whole archive"
[ -z "${UPDATES:-}" ] || [ -f "$here/signing.pub" ] || [ -f "$config/signing.pub" ] ||
    fail "there is no signing.pub to check releases with: enrol this board with --signing-key"

package=${1:-}
if [ -z "$package" ]; then
    for wheel in "$here"/edge_federation-*.whl; do
        [ ! -f "$wheel" ] || package=$wheel
    done
fi
release=
if [ -n "$package" ]; then
    [ -x "$home/bin/python" ] || { say "making $home"; "$python" -m venv "$home"; }
    case $package in
        *.tar) release=$package ;;
    esac
fi
if [ -n "$release" ]; then
    say "installing $release into $home, from its wheels alone"
    wheels=$(mktemp -d)
    trap 'rm -rf "$wheels"' EXIT
    tar xf "$release" -C "$wheels"
    wanted=$("$home/bin/python" -c 'import json, sys
found = json.load(open(sys.argv[1]))
print("{package}[{0}]=={version}".format(",".join(found["extras"]), **found))' "$wheels/release.json")
    "$home/bin/python" -m pip install --quiet --disable-pip-version-check --no-index \\
        --find-links "$wheels" "$wanted"
elif [ -n "$package" ]; then
    case $package in
        *\\[*|*" @ "*) ;;
        *) package="edge-federation[client,trust] @ $(
            case $package in
                *://*) echo "$package" ;;
                /*) echo "file://$package" ;;
                *) echo "file://$(pwd)/$package" ;;
            esac
        )" ;;
    esac
    say "installing $package into $home; with torch this takes some minutes"
    "$home/bin/python" -m pip install --quiet --disable-pip-version-check "$package"
elif [ ! -x "$home/bin/edge-client" ]; then
    fail "there is no $home/bin/edge-client: give this script the wheel: $0 edge_federation-VERSION.whl"
fi

if [ -z "$root" ] && ! id edge-client >/dev/null 2>&1; then
    say "making the user edge-client"
    useradd --system --no-create-home --shell /usr/sbin/nologin edge-client
fi

umask 077
mkdir -p "$config"
put() {
    # An installed certificate may be a renewed one: keep it unless FORCE is set.
    if [ -f "$config/$1" ] && [ -z "${FORCE:-}" ] && ! cmp -s "$here/$1" "$config/$1"; then
        say "keeping $config/$1, which differs (FORCE=1 replaces it)"
        return
    fi
    cp "$here/$1" "$config/.$1.new"
    chmod 600 "$config/.$1.new"
    mv "$config/.$1.new" "$config/$1"
}
for file in ca.pem device.pem device.key signing.pub client.toml; do
    [ ! -f "$here/$file" ] || put "$file"
done
chmod 700 "$config"
[ -n "$root" ] || chown -R edge-client:edge-client "$config"

mkdir -p "$units"
cp "$here/edge-client.service" "$units/edge-client.service"
chmod 644 "$units/edge-client.service"
if [ -n "${UPDATES:-}" ]; then
    slots=$root/var/lib/edge-client/client
    mkdir -p "$slots"
    if [ ! -L "$slots/current" ] && [ -n "$release" ]; then
        "$home/bin/edge-client" install "$release" --trust "$config/signing.pub" --root "$slots"
    elif [ ! -L "$slots/current" ]; then
        "$home/bin/edge-client" install --root "$slots"
    fi
    [ -n "$root" ] || chown -R edge-client:edge-client "$root/var/lib/edge-client"
    mkdir -p "$units/edge-client.service.d"
    cat >"$units/edge-client.service.d/launcher.conf" <<'CONF'
@LAUNCHER@CONF
    chmod 644 "$units/edge-client.service.d/launcher.conf"
fi
if [ -z "$root" ] && command -v systemctl >/dev/null 2>&1 && [ -d /run/systemd/system ]; then
    systemctl daemon-reload
    systemctl enable edge-client
    if grep -q '^data *=' "$config/client.toml"; then
        systemctl restart edge-client
        say "running; see: journalctl -u edge-client -f"
    else
        say "set data in $config/client.toml, then: systemctl restart edge-client"
    fi
else
    say "installed; start it with: systemctl enable --now edge-client"
fi
"""


def board_files(
    *,
    broker: str,
    federation: str,
    device: str,
    trusts: bool = False,
    data: str | None = None,
    labels: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The files' contents by name; `client.toml` has relative paths. Without `data` its owner must set it."""
    lines = {
        "broker": broker,
        "federation": federation,
        "device-id": device,
        "ca": CA,
        "cert": CERTIFICATE,
        "key": KEY,
        **({"trust": TRUST} if trusts else {}),
        **({"label": [f"{key}={value}" for key, value in sorted(labels.items())]} if labels else {}),
    }
    source = _UNSET if data is None else f"data = {json.dumps(data)}\n"
    stated = "".join(f"{key} = {json.dumps(value)}\n" for key, value in lines.items())
    return {
        CONFIG: f"{_HEAD}{stated}\n{source}{_OPTIONAL}",
        UNIT: _UNIT,
        INSTALL: _INSTALL.replace("@LAUNCHER@", LAUNCHER),
    }


_HEAD = "# edge-client run --config client.toml. Keys are the options of `edge-client run --help`.\n"
_UNSET = """\
# The data source of this device. It must be set: without it `edge-client run` ends with exit code 2.
#data = "folder:/srv/photos"
"""
_OPTIONAL = """\
#tier = 2
#threads = 2
"""


def write_board_files(folder: Path, texts: dict[str, str]) -> None:
    """Write the files, readable by their owner only; the install script is executable."""
    private_folder(folder)
    for name, text in texts.items():
        write_private(folder / name, text.encode())
    (folder / INSTALL).chmod(0o700)
