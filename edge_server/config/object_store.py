"""The section `[object-store]` of a federation file."""

import re
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import Field, StringConstraints

from edge_client.transport.broker_link import is_loopback
from schemas.base import Name, Settings
from schemas.values import Seconds

# The sections `[home-assistant]` and `[sparkplug]` of a federation file.

_ESCAPED = re.compile("__|_d")
PREFIX_PATTERN = r"^[A-Za-z0-9_-]{1,64}(/[A-Za-z0-9_-]{1,64}){0,7}$"


class HomeAssistantSettings(Settings):
    """The connection to Home Assistant; off unless `discovery` is set.

    Home Assistant searches for devices below `prefix`. A model that its Install button has brought to a
    device is watched for `watch-s` before it is kept. On a broker with certificates `authority` is the folder
    of `edge-server enroll` (by default that of the server's own certificate): its `home/` and `rollout/` are
    used.
    """

    discovery: bool = False
    """Announce every device to Home Assistant."""
    prefix: Annotated[str, StringConstraints(pattern=PREFIX_PATTERN)] = "homeassistant"
    """Home Assistant's discovery prefix."""
    watch_s: Seconds = 300.0
    """Seconds for which a model installed by the button is watched."""
    authority: Path | None = None
    """The authority's folder, if the broker asks for certificates."""


def identifier(name: str) -> str:
    """A name for Home Assistant's topics, without dots; different names stay different."""
    return name.replace("_", "__").replace(".", "_d")


def name_of(identifier: str) -> str:
    return _ESCAPED.sub(lambda found: "_" if found.group() == "__" else ".", identifier)


class SparkplugSettings(Settings):
    """The federation as an edge node in the Sparkplug group `group`; off unless it is set.

    The node has the federation's name and its devices theirs. On a broker with certificates `authority` is
    the folder of `edge-server enroll` (by default that of the server's own certificate): its `sparkplug/` is
    used.
    """

    group: Name | None = None
    """Sparkplug group; unset turns Sparkplug off."""
    datatypes: bool = True
    """Whether data messages repeat the types that births state. The specification recommends to leave them
    out, but npm's sparkplug-payload 1.0.3 then reads each value as null."""
    authority: Path | None = None
    """The authority's folder, if the broker asks for certificates."""


EMBEDDED = "embedded"
SCHEMES = ("https", "http", "s3")


class ObjectStoreSettings(Settings):
    """An object store for large blobs. Blobs that it does not deliver travel through the broker in chunks."""

    store: str | None = None
    """`https://host:port/prefix` (an `edge-server object-store` with the same secret),
    `s3://bucket/prefix`, or `embedded`: a store inside the server for devices on the same machine.
    Unset: no store.
    """
    threshold_mb: float = Field(default=50.0, ge=0)
    """Megabytes above which a blob goes to the store."""
    url_minutes: float = Field(default=60.0, gt=0, le=7 * 24 * 60)
    """Minutes for which a signed address is good."""
    secret: Path | None = None
    """File with the secret of the store, mode 0600."""
    endpoint: str | None = None
    """The S3 endpoint, if it is not Amazon's."""
    ca: Path | None = None
    """Authority of the store's certificate; the system's if unset."""

    def _check(self) -> None:
        if self.store not in (None, EMBEDDED):
            self._check_store()
        if self.store is None and (self.secret or self.ca):
            raise ValueError("store: name the store that secret and ca are for, or leave them out")
        if self.endpoint is not None and not str(self.store).startswith("s3://"):
            raise ValueError("endpoint is for a store s3://bucket/prefix")

    def _check_store(self) -> None:
        parts = urlsplit(str(self.store))
        if parts.scheme not in SCHEMES or not parts.hostname:
            raise ValueError(
                f"store '{self.store}': https://host:port/prefix, s3://bucket/prefix or {EMBEDDED}"
            )
        if parts.username is not None or parts.query or parts.fragment:
            raise ValueError("store: no user, password or query belongs there")
        if parts.scheme == "s3":
            return
        if self.secret is None:
            raise ValueError("secret: name the file that `edge-server object-store --secret` has, too")
        if parts.scheme == "http" and not is_loopback(parts.hostname):
            raise ValueError("store: use https: anyone who reads an address on the network can use it")
