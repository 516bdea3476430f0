"""Blobs and chunk frames: valid data survives a round trip, invalid data raises `PeerError`."""

import contextlib
import json
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from schemas.errors import PeerError, Reason
from schemas.strategy import StrategySpec
from schemas.tensors.chunks import (
    CHUNK_HEADER_BYTES,
    INLINE_BYTES,
    BlobRef,
    Chunk,
    decode_chunk,
    digest_of,
    encode_chunk,
    encode_json,
)
from tests.groups import decode_groups, encode_groups, read_groups
from tests.schemas.examples import DIGEST, GROUPS, SPEC, STRATEGY

ENCODED = encode_groups(GROUPS)
FRAME = encode_chunk(DIGEST, 3, b"some bytes")

names = st.text("abc./", min_size=1, max_size=6)
shapes = st.lists(st.integers(0, 3), max_size=3).map(tuple)
arrays = st.builds(
    lambda shape, seed: np.random.default_rng(seed).normal(size=shape).astype(np.float32),
    shapes,
    st.integers(0, 99),
)
groups_of_arrays = st.dictionaries(
    st.text("abc.", min_size=1, max_size=4),
    st.dictionaries(names, arrays, min_size=1, max_size=4),
    max_size=3,
)


def same(left: object, right: object) -> bool:
    return (
        left.keys() == right.keys()
        and all(left[group].keys() == right[group].keys() for group in left)
        and all(
            array.dtype == right[group][name].dtype
            and array.shape == right[group][name].shape
            and array.tobytes() == right[group][name].tobytes()
            for group, inner in left.items()
            for name, array in inner.items()
        )
    )


def blob(header: object, data: bytes = b"") -> bytes:
    """A safetensors file with the given header."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


# --- groups ---
@given(groups_of_arrays)
def test_groups_survive_a_round_trip(groups):
    assert same(decode_groups(encode_groups(groups)), groups)


@pytest.mark.parametrize("shape", [(), (0,), (1,), (2, 0, 3), (2, 3)])
def test_every_shape_survives_a_round_trip(shape):
    array = np.full(shape, 1.5, np.float32)
    assert decode_groups(encode_groups({"model": {"w": array}}))["model"]["w"].shape == shape


@given(groups_of_arrays, st.randoms(use_true_random=False))
def test_equal_groups_are_encoded_equally_in_any_order(groups, random):
    def shuffled(items):
        return dict(random.sample(sorted(items.items(), key=lambda item: item[0]), len(items)))

    again = shuffled({group: shuffled(inner) for group, inner in groups.items()})
    assert encode_groups(again) == encode_groups(groups)


def test_the_memory_layout_does_not_change_the_bytes():
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    views = [array, np.asfortranarray(array), np.repeat(array, 2, axis=1)[:, ::2], array[::-1][::-1]]
    assert len({encode_groups({"model": {"w": view}}) for view in views}) == 1


def test_a_file_of_groups_is_read(tmp_path):
    path = tmp_path / "blob"
    path.write_bytes(ENCODED)
    assert same(read_groups(path), GROUPS)


def test_an_invalid_file_is_named_in_the_error(tmp_path):
    path = tmp_path / "odd-name"
    path.write_bytes(b"odd")
    with pytest.raises(PeerError, match="odd-name"):
        read_groups(path)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"PK\x03\x04 not this",
        # The first bytes of a pickle, which must never be unpickled.
        b"\x80\x04\x95 nor a pickle",
        struct.pack("<Q", 2**63) + b"{}",
        blob(b"[]"),
        blob(b"\xff" * 8),
        blob(b"[" * 100_000),
        blob({"m/w": {"dtype": "F32", "shape": [4], "data_offsets": [0, 8]}}, bytes(8)),
        blob({"m/w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 800]}}, bytes(8)),
        blob({"m/w": {"dtype": "F32", "shape": [2**62, 4], "data_offsets": [0, 8]}}, bytes(8)),
        blob({"m/w": {"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]}}, bytes(8)),
        blob({"m/w": {"dtype": "F99", "shape": [2], "data_offsets": [0, 8]}}, bytes(8)),
        blob({"m/w": {"dtype": "BF16", "shape": [4], "data_offsets": [0, 8]}}, bytes(8)),
        blob({"m/w": {"dtype": "F8_E4M3", "shape": [8], "data_offsets": [0, 8]}}, bytes(8)),
        blob({"m/w": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}, bytes(8)),
        blob({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}, bytes(8)),
        blob({"/w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}, bytes(8)),
        blob({"m/": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}, bytes(8)),
        ENCODED + b"x",
    ],
)
def test_an_invalid_blob_is_refused(data):
    with pytest.raises(PeerError) as refused:
        decode_groups(data)
    assert refused.value.reason == Reason.MALFORMED


@given(st.integers(0, len(ENCODED) - 1))
def test_a_truncated_blob_is_refused(length):
    with pytest.raises(PeerError):
        decode_groups(ENCODED[:length])


def assert_groups_or_refused(data: bytes) -> None:
    with contextlib.suppress(PeerError):
        assert all(
            isinstance(a, np.ndarray) for inner in decode_groups(data).values() for a in inner.values()
        )


@given(st.binary(max_size=200))
def test_any_bytes_are_decoded_or_refused(data):
    assert_groups_or_refused(data)
    assert_groups_or_refused(blob(data))


@given(st.lists(st.tuples(st.integers(0, len(ENCODED) - 1), st.integers(0, 255)), max_size=5))
def test_a_damaged_blob_is_decoded_or_refused(damage):
    data = bytearray(ENCODED)
    for place, byte in damage:
        data[place] = byte
    assert_groups_or_refused(bytes(data))


# --- frames ---
@given(digest=st.binary(max_size=9), index=st.integers(0, 2**32 - 1), data=st.binary(min_size=1, max_size=99))
def test_a_frame_survives_a_round_trip(digest, index, data):
    name = digest_of(digest)
    assert decode_chunk(encode_chunk(name, index, data)) == Chunk(name[:16], index, data)


def test_a_frame_is_a_20_byte_header_followed_by_the_data():
    assert CHUNK_HEADER_BYTES == 20
    assert FRAME[:3] == b"EF\x01"
    assert FRAME[20:] == b"some bytes"


@pytest.mark.parametrize("place", range(len(FRAME)))
def test_one_damaged_byte_never_changes_the_data(place):
    frame = bytearray(FRAME)
    frame[place] ^= 0x40
    with contextlib.suppress(PeerError):
        assert decode_chunk(bytes(frame)).data == b"some bytes"


@pytest.mark.parametrize("place", range(CHUNK_HEADER_BYTES, len(FRAME)))
def test_damaged_data_is_refused_with_a_digest_mismatch(place):
    frame = bytearray(FRAME)
    frame[place] ^= 1
    with pytest.raises(PeerError) as refused:
        decode_chunk(bytes(frame))
    assert refused.value.reason == Reason.DIGEST_MISMATCH


@pytest.mark.parametrize("length", range(len(FRAME)))
def test_a_truncated_frame_is_refused(length):
    with pytest.raises(PeerError):
        decode_chunk(FRAME[:length])


@pytest.mark.parametrize("head", [b"EG\x01", b"EF\x02", b"EF\x00"])
def test_a_frame_with_another_magic_or_version_is_refused(head):
    with pytest.raises(PeerError, match="version 1"):
        decode_chunk(head + FRAME[3:])


@given(st.binary(max_size=80))
def test_any_bytes_are_decoded_as_a_chunk_or_refused(data):
    for frame in (data, b"EF\x01" + data):
        with contextlib.suppress(PeerError):
            assert isinstance(decode_chunk(frame), Chunk)


# --- references ---
@pytest.mark.parametrize(
    ("size", "chunks", "last"), [(1, 1, 1), (1024, 1, 1024), (1025, 2, 1), (4096, 4, 1024), (4097, 5, 1)]
)
def test_a_reference_computes_its_chunks(size, chunks, last):
    ref = BlobRef(digest=DIGEST, size=size, chunk_bytes=1024)
    assert (ref.chunks, ref.chunk_size(chunks - 1)) == (chunks, last)
    assert sum(ref.chunk_size(index) for index in range(chunks)) == size


@pytest.mark.parametrize(
    ("size", "chunk_bytes", "inline"),
    [
        (INLINE_BYTES, 256 * 1024, True),
        (INLINE_BYTES + 1, 256 * 1024, False),
        (64 * 1024, 64 * 1024, True),
        (64 * 1024 + 1, 64 * 1024, False),  # two chunks are never sent inline
    ],
)
def test_small_blobs_are_sent_inline(size, chunk_bytes, inline):
    assert BlobRef(digest=DIGEST, size=size, chunk_bytes=chunk_bytes).inline is inline


@pytest.mark.parametrize(
    "fields",
    [
        {"size": 0},
        {"size": -1},
        {"size": 2**32 + 1},
        {"chunk_bytes": 0},
        {"chunk_bytes": 1023},
        {"chunk_bytes": 2**20 + 1},
        {"digest": DIGEST.upper()},
        {"digest": DIGEST[:-1]},
        {"digest": DIGEST + "\n"},
        {"digest": "../" + DIGEST[3:]},
    ],
)
def test_an_invalid_reference_is_refused(fields):
    with pytest.raises(ValidationError):
        BlobRef(**{"digest": DIGEST, "size": 10, **fields})


def test_values_encoded_as_json_have_stable_names():
    assert encode_json(SPEC) == b'{"kept":{"conv":[1,0],"hidden":3}}'
    assert StrategySpec.model_validate_json(encode_json(STRATEGY)) == STRATEGY
