"""The section `[blobs]` of a federation file."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from schemas.base import Settings

EMBEDDED = "embedded"
SCHEMES = ("https", "http", "s3")


class BlobSettings(Settings):
    """Where blobs of more than `threshold-mb` megabytes lie beside the broker; unless stated, nowhere.

    `store` is `https://host:port/prefix` (an `edge-server blobs` with the same `secret` file),
    `s3://bucket/prefix` (`endpoint` where it is not Amazon's; credentials as boto3 finds them) or `embedded`:
    one of this server's own, for devices on the same machine. Addresses are good for `url-minutes`; the
    certificate of the store is one of the system's authorities or of `ca`. What fails goes in chunks.
    A round's `uplink-bytes` and `downlink-bytes` are those that went through the broker.
    """

    store: str | None = None
    threshold_mb: float = Field(default=50.0, ge=0)
    url_minutes: float = Field(default=60.0, gt=0, le=7 * 24 * 60)
    secret: Path | None = None
    endpoint: str | None = None
    ca: Path | None = None

    @model_validator(mode="after")
    def _store_is_whole(self) -> BlobSettings:
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
            raise ValueError("secret: name the file that `edge-server blobs --secret` has, too")
        if parts.scheme == "http" and not is_loopback(parts.hostname):
            raise ValueError("store: use https: whoever reads an address on the network may use it")
        return self

    @model_validator(mode="after")
    def _endpoint_is_of_s3(self) -> BlobSettings:
        if self.endpoint is not None and not str(self.store).startswith("s3://"):
            raise ValueError("endpoint is for a store s3://bucket/prefix")
        return self


def is_loopback(host: str) -> bool:
    """Whether only this machine can mean it."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
