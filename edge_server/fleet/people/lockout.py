"""Waiting times after failed logins: free tries first, then exponential; pure."""

from dataclasses import dataclass, replace
from urllib.parse import urlsplit

SAME_SITE = ("same-origin", "none", "")
"""Values of `Sec-Fetch-Site` that a browser sends for the page itself; older browsers send none."""


def foreign_because(*, origin: str | None, host: str, fetch_site: str, url: str | None, cookie: bool) -> str:
    """The reason to refuse a change, or an empty text.

    `url` is the public address of the service behind a proxy. A request without `Origin` does not come
    from a browser; it is refused only if it carries a session's cookie.
    """
    if fetch_site not in SAME_SITE:
        return "the request comes from another site"
    if origin is None:
        return "the request has a cookie but no Origin header" if cookie else ""
    own = _place(url) if url else host.lower()
    return "" if _place(origin) == own else "the request comes from another origin"


def _place(url: str) -> str:
    """Host and port of an address, without a scheme's own port."""
    try:
        parts = urlsplit(url)
        own = {"https": 443, "http": 80}.get(parts.scheme)
        name = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else (parts.hostname or "")
        return name if parts.port in (None, own) else f"{name}:{parts.port}"
    except ValueError:
        return ""


FORGOTTEN_AFTER_S = 86_400.0  # Failures are forgotten after this many seconds without another one


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


def with_failure(before: Failures, now: float) -> Failures:
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
