"""Our own store: who may have what of it, and what it will not take."""

import logging
import re
import stat
from pathlib import Path

import pytest

from edge_server.transport.object_store.files import OBJECT, object_at
from edge_server.transport.object_store.http_service import serve_objects
from edge_server.transport.object_store.signed_urls import HmacUrlSigner, permitted_bytes, read_secret
from schemas.errors import ConfigError
from schemas.tensors.blobs import BlobRef, digest_of
from tests.edge_server.transport.object_store.conftest import DATA, KEY, PLACE, Shop, ask


def digest_header(ref: BlobRef) -> dict[str, str]:
    return {"X_Blob_Digest": ref.digest}


def test_what_was_put_is_there_for_whoever_has_an_address(shop: Shop) -> None:
    assert shop.put(shop.links.url("PUT", shop.blob(), seconds=60, most=len(DATA))).done
    status, headers, body = ask("GET", shop.links.url("GET", shop.blob(), seconds=60))
    assert (status, body) == (200, DATA)
    assert headers["ETag"] == f'"{shop.ref.digest}"'


@pytest.mark.parametrize(
    ("asked", "first", "last"),
    # Of 204,810 bytes: a stretch, all from one on, the last ten, and a stretch that ends beyond them.
    [
        ("bytes=10-19", 10, 19),
        ("bytes=204800-", 204_800, 204_809),
        ("bytes=-10", 204_800, 204_809),
        ("bytes=204800-999999", 204_800, 204_809),
    ],
)
def test_a_range_is_answered_with_just_that(shop: Shop, asked: str, first: int, last: int) -> None:
    shop.put(shop.links.url("PUT", shop.blob(), seconds=60, most=len(DATA)))
    status, headers, body = ask("GET", shop.links.url("GET", shop.blob(), seconds=60), Range=asked)
    assert (status, body) == (206, DATA[first : last + 1])
    assert headers["Content-Range"] == f"bytes {first}-{last}/{len(DATA)}"


def test_a_range_of_another_object_is_no_range(shop: Shop) -> None:
    shop.put(shop.links.url("PUT", shop.blob(), seconds=60, most=len(DATA)))
    url = shop.links.url("GET", shop.blob(), seconds=60)
    assert ask("GET", url, Range="bytes=0-9", If_Range=f'"{shop.ref.digest}"')[0] == 206
    assert ask("GET", url, Range="bytes=0-9", If_Range='"another"')[0] == 200
    assert ask("GET", url, Range="bytes=300000-")[0] == 416


def test_an_address_is_for_one_method_one_name_and_a_while(shop: Shop) -> None:
    shop.put(shop.links.url("PUT", shop.blob(), seconds=60, most=len(DATA)))
    good = shop.links.url("GET", shop.blob(), seconds=60)
    other = good.replace(shop.ref.digest, digest_of(b"another"))
    forged = HmacUrlSigner(shop.links.address, b"x" * 32).url("GET", shop.blob(), seconds=60)
    longer = re.sub(r"ends=\d+", "ends=99999999999", good)
    over = shop.links.url("GET", shop.blob(), seconds=-2)
    bare = good.partition("?")[0]
    refused = [other, forged, longer, over, bare, f"{bare}?ends=&most=&signature=", good + "&more=1"]
    assert [ask("GET", url)[0] for url in refused] == [403] * len(refused)
    assert ask("DELETE", good)[0] == 403
    assert ask("PUT", good, DATA, **digest_header(shop.ref))[0] == 403
    assert ask("GET", good)[0] == 200


def test_what_may_be_put_is_bounded(shop: Shop) -> None:
    size = len(DATA)
    one_short = shop.links.url("PUT", PLACE, seconds=60, most=size - 1)
    assert ask("PUT", one_short, DATA, **digest_header(shop.ref))[0] == 413
    raised = one_short.replace(f"most={size - 1}", f"most={size}")
    assert ask("PUT", raised, DATA, **digest_header(shop.ref))[0] == 403
    exact = shop.links.url("PUT", PLACE, seconds=60, most=size)
    liar = {"Content_Range": f"bytes 0-{size - 1}/10", **digest_header(shop.ref)}
    assert ask("PUT", exact, DATA, **liar)[0] == 400
    assert ask("PUT", exact, DATA, **digest_header(shop.ref))[0] == 201


def test_an_object_is_what_its_name_says_or_nothing(shop: Shop) -> None:
    url = shop.links.url("PUT", shop.blob(), seconds=60, most=len(DATA))
    assert ask("PUT", url, DATA, X_Blob_Digest=digest_of(b"another"))[0] == 404
    assert ask("PUT", url, DATA[:-1] + b"?", **digest_header(shop.ref))[0] == 422
    assert not shop.holds(shop.blob())
    place = shop.links.url("PUT", PLACE, seconds=60, most=len(DATA))
    assert ask("PUT", place, DATA[:-1] + b"?", **digest_header(shop.ref))[0] == 422
    assert ask("PUT", place, DATA, X_Blob_Digest="../../etc/passwd")[0] == 404
    assert ask("PUT", place, DATA)[0] == 404
    assert not list((shop.folder / "parts").iterdir())


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
def test_no_name_leaves_the_folder(shop: Shop, name: str) -> None:
    """Even who could sign them would get no such name."""
    (shop.folder.parent / "secret").write_bytes(b"secret")
    assert not OBJECT.fullmatch(name)
    assert object_at(name, "0" * 64) is None
    assert ask("GET", shop.links.url("GET", name, seconds=60))[0] in (403, 404)
    put = shop.links.url("PUT", name, seconds=60, most=10)
    assert ask("PUT", put, b"data", X_Blob_Digest=digest_of(b"data"))[0] in (403, 404)


def test_a_device_has_one_object_there_at_a_time(shop: Shop) -> None:
    """Who trains anew after a restart has another update, of the same size: the first one goes."""
    url = shop.links.url("PUT", PLACE, seconds=60, most=len(DATA))
    anew = shop.mine.put(DATA[::-1], chunk_bytes=1024)
    assert shop.put(url).done
    assert shop.put(url, anew).done
    held = [path.name for path in (shop.folder / "objects" / PLACE).iterdir()]
    assert held == [anew.digest]


def test_what_was_cut_of_another_object_is_not_gone_on_with(shop: Shop) -> None:
    url = shop.links.url("PUT", PLACE, seconds=60, most=len(DATA))
    half = {"Content_Range": f"bytes 0-99/{len(DATA)}", **digest_header(shop.ref)}
    status, headers, _ = ask("PUT", url, DATA[:100], **half)
    assert (status, headers["Range"]) == (308, "bytes=0-99")
    anew = shop.mine.put(DATA[::-1], chunk_bytes=1024)
    assert shop.put(url, anew).done
    assert shop.holds(f"{PLACE}/{anew.digest}")
    assert not list((shop.folder / "parts").iterdir())


def test_what_is_taken_away_leaves_nothing(shop: Shop) -> None:
    shop.put(shop.links.url("PUT", PLACE, seconds=60, most=len(DATA)))
    assert ask("DELETE", shop.links.url("DELETE", f"{PLACE}/{shop.ref.digest}", seconds=60))[0] == 204
    assert [path.name for path in (shop.folder / "objects").rglob("*")] == ["updates"]


def test_addresses_are_not_logged(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    shop.put(shop.links.url("PUT", shop.blob(), seconds=60, most=1))
    ask("GET", shop.links.url("GET", shop.blob(), seconds=60))
    assert shop.blob() in caplog.text
    assert "signature" not in caplog.text


def test_without_tls_it_hears_this_machine_only(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--cert and --key"), serve_objects(tmp_path, KEY, host="0.0.0.0"):
        pass


def test_a_secret_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
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


def test_an_address_is_good_to_its_last_second_and_no_longer() -> None:
    url = HmacUrlSigner("http://h/", KEY).url("PUT", PLACE, seconds=0, most=7)
    query = url.partition("?")[2]
    ends = int(query.partition("&")[0].removeprefix("ends="))
    assert permitted_bytes(KEY, "PUT", f"/{PLACE}", query, ends) == 7
    assert permitted_bytes(KEY, "PUT", f"/{PLACE}", query, ends + 1) is None
