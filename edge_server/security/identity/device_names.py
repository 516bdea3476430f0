"""Which names an authority may sign."""

from edge_server.security.identity.authority import RESERVED, Authority
from schemas.base import is_name, is_of_site, site_of
from schemas.errors import ConfigError


def check_device_name(name: str) -> None:
    """Raise `ConfigError` for a text that is not a name, and for the name of a part of the server."""
    if not is_name(name):
        raise ConfigError(f"'{name}': 1 to 64 letters, digits, dots, dashes, underscores")
    if name in RESERVED:
        raise ConfigError(f"'{name}' is the name of a part of the server", remedy="choose another")


def check_name_of_site(authority: Authority, name: str, *, gateway: bool = False) -> None:
    """Raise `ConfigError` for a name that this authority must not sign, or a site's without `gateway`."""
    site = authority.settings.site
    if site is not None and not is_of_site(name, site):
        raise ConfigError(
            f"'{name}': the authority in {authority.folder} is that of the site '{site}': its devices, and "
            f"the sites within it, are called {site}.NAME"
        )
    if inside := site_of(name, authority.sites()):
        raise ConfigError(
            f"'{name}' belongs to the site '{inside}', whose own authority enrols it",
            remedy=f"run `edge-server enroll {name} --within {inside} --authority DIR` at the site",
        )
    if not gateway and name in authority.sites():
        raise ConfigError(f"'{name}' is a site", remedy="--gateway issues its gateway's certificate")
