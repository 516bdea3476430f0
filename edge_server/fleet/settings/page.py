"""The tables `[page]` and `[page.oidc]` of service.toml."""

from collections.abc import Mapping
from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from edge_client.transport.broker_link import is_loopback
from edge_server.config.measures import NamedPath
from schemas.base import Settings

RoleName = Literal["viewer", "operator", "admin"]
PORT = 8270


class OidcSettings(Settings):
    """Logging in at an OpenID provider; its redirect address is `[page] url` with `/login/done`."""

    issuer: str
    """Address of the provider, as in its `/.well-known/openid-configuration`."""
    client_id: str = Field(min_length=1)
    """Name of this service at the provider."""
    client_secret_file: NamedPath | None = None
    """File with the client's secret; unset for a public client, which PKCE alone protects."""
    scopes: tuple[str, ...] = ("openid", "profile", "email")
    """Scopes that are asked for."""
    name_claim: str = "preferred_username"
    """Claim of the ID token with the user's name."""
    role_claim: str = "groups"
    """Claim with the user's groups; a dot leads into a nested claim (`realm_access.roles`)."""
    roles: Mapping[str, RoleName] = Field(min_length=1)
    """Role by value of the role claim; who has none of these values is refused."""

    @field_validator("issuer")
    @classmethod
    def _safe(cls, issuer: str) -> str:
        if not is_safe_address(issuer):
            raise ValueError(f"'{issuer}' is not https://...: anybody on the way could log in as anybody")
        return issuer

    @field_validator("scopes")
    @classmethod
    def _openid(cls, scopes: tuple[str, ...]) -> tuple[str, ...]:
        if "openid" not in scopes:
            raise ValueError("scopes need 'openid'")
        return scopes


class PageSettings(Settings):
    """The service's page and API; passwords cross a network with TLS only."""

    host: str = "127.0.0.1"
    """Address to listen at; without any user the page listens at 127.0.0.1 only."""
    port: int | None = Field(default=None, ge=0, le=65_535)
    """Port of page and API; unset is 8270, or a free one if that is in use. 0 takes a free one."""
    cert: NamedPath | None = None
    """Certificate chain of the page (PEM); with `key`, the page speaks HTTPS."""
    key: NamedPath | None = None
    """Private key of the page (PEM)."""
    url: str | None = None
    """Address in the browser, if a proxy with TLS is before the page: `https://fleet.example`."""
    proxies: tuple[str, ...] = ()
    """Addresses of such proxies; their `X-Forwarded-For` names the client for the lockout."""
    idle_s: float = Field(default=3600.0, ge=60, le=604_800)
    """Seconds without a request after which a session ends."""
    longest_s: float = Field(default=43_200.0, ge=60, le=2_592_000)
    """Seconds after a login at which its session ends in any case."""
    enabled: bool = True
    """Whether the service has a page."""
    oidc: OidcSettings | None = None
    """An OpenID provider, in addition to local passwords."""

    def _check(self) -> None:
        if (self.cert is None) != (self.key is None):
            raise ValueError("cert and key belong together: name both")
        if self.url is not None and not is_safe_address(self.url):
            raise ValueError(f"url '{self.url}' is not https://...")
        if not (self.is_protected or is_loopback(self.host)):
            raise ValueError(
                f"host '{self.host}' can be reached from other machines: name cert and key, or the url "
                "(https://...) of a proxy with TLS, so that passwords are not sent in the clear"
            )
        if self.oidc is not None and self.url is None:
            raise ValueError("oidc needs url, the page's address in the browser (http://localhost:PORT, too)")

    @property
    def is_protected(self) -> bool:
        """Whether browsers reach the page with TLS."""
        return self.cert is not None or (self.url or "").startswith("https://")

    @property
    def address(self) -> str:
        """Where browsers find the page, as far as the settings say it; empty without a page."""
        if not self.enabled or self.port == 0:
            return self.url or ""
        shown = f"[{self.host}]" if ":" in self.host else self.host
        scheme = "http" if self.cert is None else "https"
        return self.url or f"{scheme}://{shown}:{self.port or PORT}"


def is_safe_address(url: str) -> bool:
    """Whether this is an address with TLS, or of this machine."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    if not parts.hostname:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname))
