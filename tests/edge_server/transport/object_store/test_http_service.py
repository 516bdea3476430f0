"""The embedded object store: permissions of addresses, and refused uploads."""

import logging
import re
import stat
from pathlib import Path

import pytest

from edge_server.transport.object_store.http_service import serve_objects
from edge_server.transport.object_store.signed_urls import HmacUrlSigner, permitted_bytes, read_secret
from edge_server.transport.object_store.store import OBJECT, object_at
from schemas.errors import ConfigError
from schemas.tensors.chunks import BlobRef, digest_of
from tests.edge_server.transport.object_store.conftest import DATA, KEY, PLACE, HttpStore, ask


def digest_header(ref: BlobRef) -> dict[str, str]:
    return {"X_Blob_Digest": ref.digest}


def test_an_uploaded_object_can_be_read_with_a_signed_address(http_store: HttpStore) -> None:
    assert http_store.put(http_store.links.url("PUT", http_store.blob(), seconds=60, most=len(DATA))).done
    status, headers, body = ask("GET", http_store.links.url("GET", http_store.blob(), seconds=60))
    assert (status, body) == (200, DATA)
    assert headers["ETag"] == f'"{http_store.ref.digest}"'


@pytest.mark.parametrize(
    ("range_header", "first", "last"),
    # Of 204,810 bytes: a range, an open range, the last ten bytes, and a range that ends beyond the object.
    [
        ("bytes=10-19", 10, 19),
        ("bytes=204800-", 204_800, 204_809),
        ("bytes=-10", 204_800, 204_809),
        ("bytes=204800-999999", 204_800, 204_809),
    ],
)
def test_a_range_request_returns_that_range(
    http_store: HttpStore, range_header: str, first: int, last: int
) -> None:
    http_store.put(http_store.links.url("PUT", http_store.blob(), seconds=60, most=len(DATA)))
    status, headers, body = ask(
        "GET", http_store.links.url("GET", http_store.blob(), seconds=60), Range=range_header
    )
    assert (status, body) == (206, DATA[first : last + 1])
    assert headers["Content-Range"] == f"bytes {first}-{last}/{len(DATA)}"


def test_a_range_with_another_etag_returns_the_whole_object(http_store: HttpStore) -> None:
    http_store.put(http_store.links.url("PUT", http_store.blob(), seconds=60, most=len(DATA)))
    url = http_store.links.url("GET", http_store.blob(), seconds=60)
    assert ask("GET", url, Range="bytes=0-9", If_Range=f'"{http_store.ref.digest}"')[0] == 206
    assert ask("GET", url, Range="bytes=0-9", If_Range='"another"')[0] == 200
    assert ask("GET", url, Range="bytes=300000-")[0] == 416


def test_an_address_is_valid_for_one_method_one_name_and_a_limited_time(http_store: HttpStore) -> None:
    http_store.put(http_store.links.url("PUT", http_store.blob(), seconds=60, most=len(DATA)))
    good = http_store.links.url("GET", http_store.blob(), seconds=60)
    other = good.replace(http_store.ref.digest, digest_of(b"another"))
    forged = HmacUrlSigner(http_store.links.address, b"x" * 32).url("GET", http_store.blob(), seconds=60)
    longer = re.sub(r"ends=\d+", "ends=99999999999", good)
    over = http_store.links.url("GET", http_store.blob(), seconds=-2)
    bare = good.partition("?")[0]
    refused = [other, forged, longer, over, bare, f"{bare}?ends=&most=&signature=", good + "&more=1"]
    assert [ask("GET", url)[0] for url in refused] == [403] * len(refused)
    assert ask("DELETE", good)[0] == 403
    assert ask("PUT", good, DATA, **digest_header(http_store.ref))[0] == 403
    assert ask("GET", good)[0] == 200


def test_the_size_of_an_upload_is_bounded(http_store: HttpStore) -> None:
    size = len(DATA)
    one_short = http_store.links.url("PUT", PLACE, seconds=60, most=size - 1)
    assert ask("PUT", one_short, DATA, **digest_header(http_store.ref))[0] == 413
    raised = one_short.replace(f"most={size - 1}", f"most={size}")
    assert ask("PUT", raised, DATA, **digest_header(http_store.ref))[0] == 403
    exact = http_store.links.url("PUT", PLACE, seconds=60, most=size)
    wrong_total = {"Content_Range": f"bytes 0-{size - 1}/10", **digest_header(http_store.ref)}
    assert ask("PUT", exact, DATA, **wrong_total)[0] == 400
    assert ask("PUT", exact, DATA, **digest_header(http_store.ref))[0] == 201


def test_an_object_must_match_its_digest(http_store: HttpStore) -> None:
    url = http_store.links.url("PUT", http_store.blob(), seconds=60, most=len(DATA))
    assert ask("PUT", url, DATA, X_Blob_Digest=digest_of(b"another"))[0] == 404
    assert ask("PUT", url, DATA[:-1] + b"?", **digest_header(http_store.ref))[0] == 422
    assert not http_store.holds(http_store.blob())
    place = http_store.links.url("PUT", PLACE, seconds=60, most=len(DATA))
    assert ask("PUT", place, DATA[:-1] + b"?", **digest_header(http_store.ref))[0] == 422
    assert ask("PUT", place, DATA, X_Blob_Digest="../../etc/passwd")[0] == 404
    assert ask("PUT", place, DATA)[0] == 404
    assert not list((http_store.folder / "parts").iterdir())


@pytest.mark.parametrize(
    "name",
    [
        "../secret",
        "blobs/../../secret",
        f"../blobs/{'0' * 64}",
        f".hidden/blobs/{'0' * 64}",
        "blobs/" + "0" * 63,
        f"%2e%2e/blobs/{'0' * 64}",
        "updates/run/1/pi/x",
        "updates/run/one/pi",
        "",
    ],
)
def test_no_name_leaves_the_folder(http_store: HttpStore, name: str) -> None:
    """Even a correctly signed address with such a name is refused."""
    (http_store.folder.parent / "secret").write_bytes(b"secret")
    assert not OBJECT.fullmatch(name)
    assert object_at(name, "0" * 64) is None
    assert ask("GET", http_store.links.url("GET", name, seconds=60))[0] in (403, 404)
    put = http_store.links.url("PUT", name, seconds=60, most=10)
    assert ask("PUT", put, b"data", X_Blob_Digest=digest_of(b"data"))[0] in (403, 404)


def test_a_device_has_one_object_per_place(http_store: HttpStore) -> None:
    """After a restart a device trains again; its new update, of the same size, replaces the first."""
    url = http_store.links.url("PUT", PLACE, seconds=60, most=len(DATA))
    anew = http_store.mine.put_blob(DATA[::-1], chunk_bytes=1024)
    assert http_store.put(url).done
    assert http_store.put(url, anew).done
    held = [path.name for path in (http_store.folder / "objects" / PLACE).iterdir()]
    assert held == [anew.digest]


def test_an_interrupted_upload_of_another_object_is_not_continued(http_store: HttpStore) -> None:
    url = http_store.links.url("PUT", PLACE, seconds=60, most=len(DATA))
    half = {"Content_Range": f"bytes 0-99/{len(DATA)}", **digest_header(http_store.ref)}
    status, headers, _ = ask("PUT", url, DATA[:100], **half)
    assert (status, headers["Range"]) == (308, "bytes=0-99")
    anew = http_store.mine.put_blob(DATA[::-1], chunk_bytes=1024)
    assert http_store.put(url, anew).done
    assert http_store.holds(f"{PLACE}/{anew.digest}")
    assert not list((http_store.folder / "parts").iterdir())


def test_a_deleted_object_leaves_no_files(http_store: HttpStore) -> None:
    http_store.put(http_store.links.url("PUT", PLACE, seconds=60, most=len(DATA)))
    assert (
        ask("DELETE", http_store.links.url("DELETE", f"{PLACE}/{http_store.ref.digest}", seconds=60))[0]
        == 204
    )
    assert [path.name for path in (http_store.folder / "objects").rglob("*")] == ["updates"]


def test_addresses_are_not_logged(http_store: HttpStore, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    http_store.put(http_store.links.url("PUT", http_store.blob(), seconds=60, most=1))
    ask("GET", http_store.links.url("GET", http_store.blob(), seconds=60))
    assert http_store.blob() in caplog.text
    assert "signature" not in caplog.text


def test_without_tls_the_store_listens_on_loopback_only(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--cert and --key"), serve_objects(tmp_path, KEY, host="0.0.0.0"):
        pass


def test_a_secret_is_created_once_and_readable_by_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "blobs.secret"
    key = read_secret(path)
    assert (len(key), read_secret(path)) == (64, key)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        read_secret(path)
    path.chmod(0o600)
    path.write_bytes(b"short\n")
    with pytest.raises(ConfigError, match="shorter"):
        read_secret(path)


def test_an_address_is_valid_up_to_its_last_second() -> None:
    url = HmacUrlSigner("http://h/", KEY).url("PUT", PLACE, seconds=0, most=7)
    query = url.partition("?")[2]
    ends = int(query.partition("&")[0].removeprefix("ends="))
    assert permitted_bytes(KEY, "PUT", f"/{PLACE}", query, ends) == 7
    assert permitted_bytes(KEY, "PUT", f"/{PLACE}", query, ends + 1) is None
