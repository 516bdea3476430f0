"""The network link of the board: wired, wifi or cellular."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from edge_client.system.hardware.sysfs import ROOT, number, text, whole

Kind = Literal["wired", "wifi", "cellular"]
ETHERNET, POINT_TO_POINT, RAW_IP = 1, 512, 519  # `/sys/class/net/*/type` (include/uapi/linux/if_arp.h)
CELLULAR_NAMES = ("wwan", "ppp", "rmnet", "ccmni")
IS_UP = 1


@dataclass(frozen=True)
class Connection:
    """An interface and its kind; None if the kind is unknown (a tunnel)."""

    interface: str
    kind: Kind | None


def connection(root: Path = ROOT) -> Connection | None:
    """The interface of the default route; None without one."""
    interface = _default_route(root) or _default_route_v6(root)
    return None if interface is None else Connection(interface, _kind(root, interface))


def _default_route(root: Path) -> str | None:
    """The interface of the cheapest default route; columns are name, destination, gateway, flags, ..."""
    routes = []
    for line in text(root / "proc/net/route").splitlines()[1:]:
        words = line.split()
        if len(words) < 8 or words[1] != "00000000" or words[7] != "00000000":
            continue
        flags, metric = _hexadecimal(words[3]), whole(words[6])
        if flags is not None and flags & IS_UP and metric is not None:
            routes.append((metric, words[0]))
    return min(routes)[1] if routes else None


def _default_route_v6(root: Path) -> str | None:
    """The same for IPv6: destination, its length, ..., metric (the sixth), ..., flags, name."""
    routes = []
    for line in text(root / "proc/net/ipv6_route").splitlines():
        words = line.split()
        if len(words) < 10 or words[0].strip("0") or words[1] != "00" or words[9] == "lo":
            continue
        if (metric := _hexadecimal(words[5])) is not None:
            routes.append((metric, words[9]))
    return min(routes)[1] if routes else None


def _kind(root: Path, interface: str) -> Kind | None:
    folder = root / "sys/class/net" / interface
    if "/" in interface or interface in (".", ".."):
        return None
    lines, hardware = text(folder / "uevent").splitlines(), number(folder / "type")
    cellular = "DEVTYPE=wwan" in lines or hardware in (POINT_TO_POINT, RAW_IP)
    if cellular or interface.startswith(CELLULAR_NAMES):
        return "cellular"
    if "DEVTYPE=wlan" in lines or (folder / "wireless").is_dir() or (folder / "phy80211").exists():
        return "wifi"
    return "wired" if hardware == ETHERNET else None


def _hexadecimal(word: str) -> int | None:
    try:
        return int(word, 16)
    except ValueError:
        return None
