"""A model is accepted only if every byte is as signed by the trusted key."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_client.inference.benchmark import bench
from edge_client.inference.onnx_model import load_model
from edge_client.security.trusted_key import check_model, read_trusted_key
from schemas.errors import ConfigError, PeerError, Reason
from schemas.security.manifest import canonical, decode_manifest, encode_manifest, signed_bytes
from tests.edge_client.inference.test_onnx_model import run_bare, write_model
from tests.edge_client.signed import SERVER, STRANGER, TRUSTED, manifest_of, public_file, sign_file

MODEL = b"\x08\x08 some bytes that stand for a model"
SIGNED = encode_manifest(SERVER.sign(manifest_of(MODEL))).rstrip()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = write_model(tmp_path / "tier-2.onnx")
    sign_file(path)
    return path


def is_trusted(signed: bytes) -> bool:
    """Whether the trusted key accepts a manifest file."""
    try:
        TRUSTED.check(decode_manifest(signed))
    except PeerError:
        return False
    return True


def test_a_signed_manifest_is_trusted():
    assert TRUSTED.check(decode_manifest(SIGNED)) == manifest_of(MODEL)


def test_any_changed_byte_of_manifest_or_signature_is_refused():
    """Replace every byte of the file, including the key and the signature, with three other values."""
    for position in range(len(SIGNED)):
        for change in (0x01, 0x20, 0x80):
            altered = bytearray(SIGNED)
            altered[position] ^= change
            assert not is_trusted(bytes(altered)), bytes(altered)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, len(SIGNED) - 1), st.integers(1, 255))
def test_any_change_of_a_byte_is_refused(position: int, change: int):
    altered = bytearray(SIGNED)
    altered[position] ^= change
    assert not is_trusted(bytes(altered))


@settings(max_examples=100, deadline=None)
@given(st.integers(0, len(SIGNED) - 1))
def test_no_truncated_manifest_is_trusted(length: int):
    assert not is_trusted(SIGNED[:length])


@settings(max_examples=100, deadline=None)
@given(
    st.binary(max_size=400)
    | st.recursive(st.none() | st.integers(), st.lists).map(lambda x: json.dumps(x).encode())
)
def test_arbitrary_bytes_raise_a_peer_error(data: bytes):
    with pytest.raises(PeerError):
        decode_manifest(data)


@pytest.mark.parametrize("odd", [b"[" * 4000, b"\xff\xfe", b"{}", b"null", b" " * 5000], ids=repr)
def test_malformed_manifests_raise_a_peer_error(odd: bytes):
    with pytest.raises(PeerError):
        decode_manifest(odd)


@settings(max_examples=100, deadline=None)
@given(st.randoms(use_true_random=False), st.sampled_from([None, 1, "\t"]))
def test_neither_key_order_nor_spaces_matter(random: Any, indent: Any):
    text = json.dumps(shuffled(json.loads(SIGNED), random), indent=indent)
    assert is_trusted(text.encode())


def shuffled(value: Any, random: Any) -> Any:
    if not isinstance(value, dict):
        return value
    pairs = [(key, shuffled(item, random)) for key, item in value.items()]
    random.shuffle(pairs)
    return dict(pairs)


def test_the_signed_bytes_are_canonical():
    # Sorted keys, no spaces, missing values as null, no fractions; deployed servers sign exactly these bytes.
    text = (
        'edge-federation manifest 1\n{"attempt":null,"device":null,"federation":"home","issued_at":1000,'
        f'"parent_sha256":null,"ratio":"0.5","round":3,"run":"run-1","sha256":"{"a" * 64}",'
        '"spec_sha256":null,"tier":2,"version":1,"what":"tier-export"}'
    )
    assert signed_bytes(manifest_of(b"", sha256="a" * 64)) == text.encode()
    assert b"." not in canonical(manifest_of(b"", ratio=None))


def test_the_key_of_another_server_is_refused_even_with_the_trusted_fingerprint():
    strange = STRANGER.sign(manifest_of(MODEL))
    for signed in (strange, strange.model_copy(update={"key": SERVER.fingerprint})):
        with pytest.raises(PeerError) as caught:
            TRUSTED.check(signed)
        assert caught.value.reason == Reason.UNTRUSTED


def test_a_signed_model_is_loaded_with_its_manifest(model: Path):
    loaded = load_model(model, trust=TRUSTED)
    assert loaded.signed == manifest_of(model.read_bytes())
    assert load_model(model).signed is None


def damages(model: Path) -> Iterator[tuple[str, str]]:
    """Damage a model or its manifest in turn; yield the damage and the expected message."""
    data, path = model.read_bytes(), model.with_name("tier-2.onnx.manifest.json")
    manifest = path.read_bytes()
    model.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    yield "another last byte", "its sha256 is"
    model.write_bytes(data)
    path.write_bytes(b"")
    yield "an empty manifest", "not a signed manifest"
    path.write_bytes(manifest.replace(b'"signature":"', b'"signature":"00')[: len(manifest)])
    yield "a broken manifest", "not a signed manifest"
    short = json.loads(manifest)
    path.write_text(json.dumps({**short, "signature": short["signature"][:126]}))
    yield "a short signature", "manifest.*signature"
    sign_file(model, STRANGER)
    yield "a stranger's signature", f"trusted is {SERVER.fingerprint[:16]}"
    sign_file(model, what="model")
    yield "the manifest of something else", "is of a model, not of an ONNX file"
    sign_file(model, sha256="0" * 64)
    yield "the manifest of another file", r"the manifest's 0000000000000000"
    path.unlink()
    yield "no manifest", "no signed manifest tier-2.onnx.manifest.json"


def test_a_damaged_model_or_manifest_is_refused_in_one_line_with_a_remedy(model: Path):
    for what, message in damages(model):
        with pytest.raises(ConfigError, match=message) as caught:
            load_model(model, trust=TRUSTED)
        assert "\n" not in str(caught.value), what
        assert caught.value.remedy, what


@settings(max_examples=100, deadline=None)
@given(st.integers(0, len(MODEL) - 1), st.integers(1, 255))
def test_any_changed_byte_of_a_model_is_refused(tmp_path_factory: Any, position: int, change: int):
    folder = tmp_path_factory.mktemp("model")
    path = folder / "model.onnx"
    path.write_bytes(MODEL)
    sign_file(path)
    assert check_model(path, MODEL, TRUSTED).tier == 2
    altered = bytearray(MODEL)
    altered[position] ^= change
    with pytest.raises(ConfigError, match="its sha256 is"):
        check_model(path, bytes(altered), TRUSTED)


def test_the_servers_own_export_can_be_required(model: Path):
    data = model.read_bytes()
    check_model(model, data, TRUSTED, exported_by="server")
    with pytest.raises(ConfigError, match="exported by the server, required is pi"):
        check_model(model, data, TRUSTED, exported_by="pi")
    # A device may be named "server", but its export is not accepted as the server's.
    sign_file(model, what="device-export", device="server")
    with pytest.raises(ConfigError, match="exported by device server, required is server"):
        check_model(model, data, TRUSTED, exported_by="server")
    sign_file(model, what="device-export", device="pi")
    assert check_model(model, data, TRUSTED, exported_by="pi").device == "pi"
    assert check_model(model, data, TRUSTED).device == "pi"


def test_a_benchmark_also_requires_the_manifest(model: Path):
    assert list(bench(model, seconds=0.01, trust=TRUSTED))
    model.with_name("tier-2.onnx.manifest.json").unlink()
    with pytest.raises(ConfigError, match="no signed manifest"):
        list(bench(model, seconds=0.01, trust=TRUSTED))


# --- the key's file ---
def test_a_public_key_is_read_as_it_was_written(tmp_path: Path):
    assert read_trusted_key(public_file(tmp_path / "signing.pub")).fingerprint == SERVER.fingerprint


def test_an_invalid_public_key_is_refused_with_a_remedy(tmp_path: Path):
    private = SERVER.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    other = X25519PrivateKey.generate().public_key()
    for content, message in (
        (b"", "is not a public key in PEM"),
        (b"ssh-ed25519 AAAA", "is not a public key in PEM"),
        (SERVER.public_text.encode()[:60], "is not a public key in PEM"),
        (private, "is a private key: give the public one"),
        (other.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo), "is not an Ed25519 key"),
    ):
        (tmp_path / "key").write_bytes(content)
        with pytest.raises(ConfigError, match=message):
            read_trusted_key(tmp_path / "key")
    with pytest.raises(ConfigError, match="cannot read"):
        read_trusted_key(tmp_path / "no-such-key")


# --- the command ---
def test_infer_with_a_key_runs_a_signed_model_without_torch(model: Path, tmp_path: Path):
    key, images = public_file(tmp_path / "signing.pub"), write_images(tmp_path)
    done = run_bare("infer", model, images, "--trust", key, "--format", "json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["signed"]["what"] == "tier-export"
    sign_file(model, what="device-export", device="pi")
    done = run_bare("infer", model, images, "--trust", key)
    assert (done.returncode, "exported by device pi" in done.stderr) == (0, True)


def test_infer_and_bench_with_a_key_refuse_with_exit_code_2(model: Path, tmp_path: Path):
    key = public_file(tmp_path / "signing.pub", STRANGER)
    for command in (("infer", model, write_images(tmp_path)), ("bench", model)):
        done = run_bare(*command, "--trust", key)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert f"signed with key {SERVER.fingerprint[:16]}" in done.stderr
        assert "trust the key of the server" in done.stderr


def test_cryptography_is_required_only_with_a_key(model: Path, tmp_path: Path):
    images = write_images(tmp_path)
    assert run_bare("infer", model, images, without="cryptography").returncode == 0
    done = run_bare(
        "infer", model, images, "--trust", public_file(tmp_path / "signing.pub"), without="cryptography"
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "pip install 'edge-federation[trust]'" in done.stderr


def test_exported_by_without_a_key_is_a_usage_error(model: Path, tmp_path: Path):
    done = run_bare("infer", model, write_images(tmp_path), "--exported-by", "server")
    assert done.returncode == 2
    assert "name the key too" in done.stderr


def write_images(folder: Path) -> Path:
    import numpy as np

    np.save(folder / "images.npy", np.eye(3, dtype=np.float32).reshape(3, 1, 1, 3))
    return folder / "images.npy"
