"""The object store that a federation file names, open while its run lasts."""

import contextlib
import secrets
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from edge_client.transport.object_store.http import HttpClient
from edge_server.config.object_store import EMBEDDED, ObjectStoreSettings
from edge_server.transport.object_store.http_service import serve_objects
from edge_server.transport.object_store.signed_urls import (
    KEY_BYTES,
    HmacUrlSigner,
    S3UrlSigner,
    UrlSigner,
    read_secret,
)
from edge_server.transport.object_store.store import ObjectStore

PATIENCE_S = 15.0


@contextlib.contextmanager
def open_object_store(settings: ObjectStoreSettings, folder: Path) -> Iterator[ObjectStore | None]:
    """The object store, None if the file names none; an embedded one keeps its objects in `folder`.

    Raises `ConfigError` for an unusable secret or S3 client.
    """
    if settings.store is None:
        yield None
    elif settings.store == EMBEDDED:
        key = secrets.token_bytes(KEY_BYTES)
        with serve_objects(folder, key) as address:
            yield _object_store(settings, HmacUrlSigner(address, key))
    else:
        yield _object_store(settings, _url_signer(settings, settings.store))


def _object_store(settings: ObjectStoreSettings, signer: UrlSigner) -> ObjectStore:
    web = HttpClient(ca=settings.ca, timeout_s=PATIENCE_S)
    above = int(settings.threshold_mb * 10**6)
    return ObjectStore(signer, web, above=above, seconds=settings.url_minutes * 60)


def _url_signer(settings: ObjectStoreSettings, store: str) -> UrlSigner:
    parts = urlsplit(store)
    if parts.scheme == "s3":
        return S3UrlSigner(parts.netloc, parts.path, settings.endpoint)
    assert settings.secret is not None
    return HmacUrlSigner(store, read_secret(settings.secret))
