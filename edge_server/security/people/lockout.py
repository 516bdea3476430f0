"""Waiting times after failed logins: free tries first, then exponential; pure."""

import ipaddress
from dataclasses import dataclass, replace

FORGOTTEN_AFTER_S = 86_400.0
"""Failures are forgotten after this many seconds without another one."""


@dataclass(frozen=True)
class LockoutRules:
    """After `free` failures a login waits `first_s`; each further one doubles that, up to `longest_s`."""

    free: int
    first_s: float
    longest_s: float


USER_RULES = LockoutRules(free=5, first_s=15.0, longest_s=900.0)
ADDRESS_RULES = LockoutRules(free=20, first_s=15.0, longest_s=3600.0)
"""An address may be that of several people, so it has more free tries."""


@dataclass(frozen=True)
class Failures:
    """The failed logins of one user or address since its last success."""

    count: int = 0
    last_at: float = 0.0


def failed(before: Failures, now: float) -> Failures:
    """The failures with one more."""
    return replace(current(before, now), count=current(before, now).count + 1, last_at=now)


def current(failures: Failures, now: float) -> Failures:
    """The failures that still count."""
    return failures if now - failures.last_at < FORGOTTEN_AFTER_S else Failures()


def wait_s(failures: Failures, rules: LockoutRules, now: float) -> float:
    """Seconds until the next login is examined; 0 if it may be examined now."""
    counted = current(failures, now)
    if counted.count < rules.free:
        return 0.0
    # The exponent is bounded: 2.0 ** 1024 is an error.
    doubled = rules.first_s * 2.0 ** min(counted.count - rules.free, 64)
    return max(0.0, counted.last_at + min(doubled, rules.longest_s) - now)


def counted_address(address: str) -> str:
    """The address that failures are counted for: of IPv6 the /64, which one customer has as a whole."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return "unknown"
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((parsed, 64), strict=False))
