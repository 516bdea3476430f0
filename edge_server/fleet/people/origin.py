"""Whether a request that changes something comes from the service's own page; pure."""

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
