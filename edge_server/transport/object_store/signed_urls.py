"""URLs that are valid for a limited time: signed for our own object store (HMAC), or presigned for S3.

Ours sign method, path, expiry and the maximum upload size; the key never leaves server and object store.
"""

import hashlib
import hmac
import re
import secrets
import time
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qs, urlsplit

from edge_client.security.identity.private_files import is_open_to_others, private_folder, write_private
from schemas.errors import ConfigError

KEY_BYTES = 32


class UrlSigner(Protocol):
    """Makes URLs, which all begin with `address`; `resumable` says whether uploads are."""

    address: str
    resumable: bool

    def url(self, method: str, name: str, *, seconds: float, most: int = 0) -> str:
        """A URL for one method on one object, valid for `seconds`; PUT accepts at most `most` bytes."""


class HmacUrlSigner:
    """URLs of `edge-server object-store`, or of the embedded object store."""

    resumable = True

    def __init__(self, address: str, key: bytes) -> None:
        self.address, self._key = address.rstrip("/") + "/", key

    def url(self, method: str, name: str, *, seconds: float, most: int = 0) -> str:
        url, ends = f"{self.address}{name}", int(time.time() + seconds)
        signature = sign(self._key, method, urlsplit(url).path, ends, most)
        return f"{url}?ends={ends}&most={most}&signature={signature}"


def sign(key: bytes, method: str, path: str, ends: int, most: int) -> str:
    """The signature of a URL, in hex."""
    text = f"edge-federation blob 1\n{method}\n{path}\n{ends}\n{most}"
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def permitted_bytes(key: bytes, method: str, path: str, query: str, now: float) -> int | None:
    """The maximum upload size of a signed URL; None if its signature is wrong or it has expired."""
    fields = parse_qs(query, max_num_fields=3) if query.count("&") == 2 else {}
    ends, most = (fields.get(name, [""])[0] for name in ("ends", "most"))
    if not all(re.fullmatch(r"[0-9]{1,15}", number) for number in (ends, most)):
        return None
    expected = sign(key, method, path, int(ends), int(most))
    right = hmac.compare_digest(expected.encode(), fields.get("signature", [""])[0].encode())
    return int(most) if right and now <= int(ends) else None


def read_secret(path: Path) -> bytes:
    """The key in a file that only its owner may read, made if missing; raises `ConfigError`."""
    try:
        if not path.exists():
            private_folder(path.absolute().parent)
            write_private(path, secrets.token_hex(KEY_BYTES).encode() + b"\n")
        if is_open_to_others(path):
            raise ConfigError(f"secret {path}: others may read it", remedy=f"chmod 600 {path}")
        key = path.read_bytes().strip()
    except OSError as error:
        raise ConfigError(f"secret {path}: {error.strerror}") from error
    if len(key) < KEY_BYTES:
        raise ConfigError(
            f"secret {path}: shorter than {KEY_BYTES} bytes", remedy="name another path, one is made"
        )
    return key


class S3UrlSigner:
    """Presigned URLs of a bucket; credentials as boto3 finds them."""

    resumable = False

    def __init__(self, bucket: str, prefix: str, endpoint: str | None) -> None:
        self._client, self._bucket = _s3_client(endpoint), bucket
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        # The bucket's position in the URL depends on the endpoint, so boto3 makes the address.
        self.address = self.url("GET", "x", seconds=60).partition("?")[0].removesuffix("x")

    def url(self, method: str, name: str, *, seconds: float, most: int = 0) -> str:
        """A presigned URL; S3 does not limit the upload size."""
        operation = {"GET": "get", "HEAD": "head", "PUT": "put", "DELETE": "delete"}[method] + "_object"
        made: str = self._client.generate_presigned_url(
            operation,
            Params={"Bucket": self._bucket, "Key": f"{self._prefix}{name}"},
            ExpiresIn=max(1, int(seconds)),
        )
        return made


def _s3_client(endpoint: str | None) -> Any:
    try:
        import boto3
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError, ClientError
    except ImportError as error:
        raise ConfigError(
            "[object-store] store s3:// needs the package boto3", remedy="pip install 'edge-federation[s3]'"
        ) from error
    config = Config(
        signature_version="s3v4",
        s3={"addressing_style": "path" if endpoint else "auto"},
        # Otherwise uploads would need headers that a plain PUT does not have.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    try:
        client = boto3.Session().client("s3", endpoint_url=endpoint, config=config)
        # Presigning contacts no server, so missing credentials would only show on devices.
        client.generate_presigned_url("list_buckets")
    except (BotoCoreError, ClientError, ValueError) as error:
        raise ConfigError(str(error), key="[object-store] store s3://") from error
    return client
