"""Throttling: the flags of a Raspberry Pi's firmware."""

from __future__ import annotations

from pathlib import Path

from edge_client.system.hardware.sysfs import ROOT, text

GET_THROTTLED = "sys/devices/platform/soc/soc:firmware/get_throttled"
FLAGS = {
    0: "under-voltage",
    1: "frequency-capped",
    2: "throttled",
    3: "soft-temperature-limit",
    16: "under-voltage-since-boot",
    17: "frequency-capped-since-boot",
    18: "throttled-since-boot",
    19: "soft-temperature-limit-since-boot",
}
"""Raspberry Pi documentation, `vcgencmd get_throttled`."""


def throttle_flags(root: Path = ROOT) -> tuple[str, ...] | None:
    """The set flags; None without such firmware. The kernel writes them in hexadecimal."""
    digits = text(root / GET_THROTTLED).removeprefix("0x")
    if not 0 < len(digits) <= 8 or any(digit not in "0123456789abcdefABCDEF" for digit in digits):
        return None
    bits = int(digits, 16)
    return tuple(flag for bit, flag in FLAGS.items() if bits >> bit & 1)
