"""The section `[object-store]` of a federation file."""

from pathlib import Path
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from edge_client.transport.broker_address import is_loopback
from schemas.base import Settings

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

    @model_validator(mode="after")
    def _store_is_whole(self) -> "ObjectStoreSettings":
        if self.store in (None, EMBEDDED):
            return self
        parts = urlsplit(str(self.store))
        if parts.scheme not in SCHEMES or not parts.hostname:
            raise ValueError(
                f"store '{self.store}': https://host:port/prefix, s3://bucket/prefix or {EMBEDDED}"
            )
        if parts.username is not None or parts.query or parts.fragment:
            raise ValueError("store: no user, password or query belongs there")
        if parts.scheme == "s3":
            return self
        if self.secret is None:
            raise ValueError("secret: name the file that `edge-server object-store --secret` has, too")
        if parts.scheme == "http" and not is_loopback(parts.hostname):
            raise ValueError("store: use https: anyone who reads an address on the network can use it")
        return self

    @model_validator(mode="after")
    def _endpoint_is_of_s3(self) -> "ObjectStoreSettings":
        if self.endpoint is not None and not str(self.store).startswith("s3://"):
            raise ValueError("endpoint is for a store s3://bucket/prefix")
        return self
