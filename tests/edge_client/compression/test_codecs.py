"""Codecs: bounded errors, lossless packing, and refusal of damaged data."""

import hashlib
import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from edge_client.compression import quantization
from edge_client.compression.chain import CODECS, in_codes, make_chain
from edge_client.compression.decoding import decode_groups, is_coded
from edge_client.compression.sparse import TopK, to_dense, to_sparse
from edge_client.compression.zstd import MAGIC, Zstd, is_compressed, unpack
from edge_client.storage.blob_store import BlobStore
from schemas.errors import ConfigError, PeerError
from schemas.strategy import Component
from schemas.tensors.arrays import rows_of
from schemas.tensors.files import FileGroups, write_tensors
from tests.groups import encode_groups

SHAPES = array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=6)
NUMBERS = st.floats(-1000, 1000, width=32)
ARRAYS = arrays(np.float32, SHAPES, elements=NUMBERS)
UPDATES = st.dictionaries(st.sampled_from(["a.weight", "b.weight", "c.bias"]), ARRAYS, min_size=1)
SEEDS = st.integers(0, 2**48 - 1)
LEVELS = st.integers(1, 127)
quickly = settings(max_examples=30, deadline=None)


def chain(*named):
    """The chain of components as a recipe writes them."""
    return make_chain([Component.model_validate(component) for component in named])


def roundtrip(codecs, update, seed=0, residual=None):
    """The update as the server reads it."""
    encoded = codecs.encode(update, seed, residual)
    again = decode_groups(encoded.groups)["model"]
    return {name: again[name] for name in again}, encoded


def same(first, second):
    return first.dtype == second.dtype and first.shape == second.shape and np.array_equal(first, second)


def test_float16_rounding_follows_ieee_754():
    halves = np.arange(2**16, dtype=np.uint16).view(np.float16)
    wide = quantization.floats_of(halves)
    np.testing.assert_array_equal(wide, halves.astype(np.float32))
    # For each pair of neighbours: the middle, which is rounded to even, and the numbers next to it.
    finite = np.unique(wide[np.isfinite(wide)])
    middles = (finite[:-1] + finite[1:]) / 2
    ends = np.float32([65_519, 65_520, -65_520, 1e30, np.inf, 1e-9, -0.0])
    numbers = np.concatenate(
        [middles, np.nextafter(middles, finite[1:]), np.nextafter(middles, finite[:-1]), ends]
    )
    with np.errstate(over="ignore"):
        expected = numbers.astype(np.float16)
    np.testing.assert_array_equal(
        quantization.Fp16().encode(numbers, None, None).view(np.uint16), expected.view(np.uint16)
    )


# --- single numbers ---
@quickly
@given(UPDATES)
def test_a_float16_value_is_off_by_at_most_half_a_unit_in_the_last_place(update):
    again, _ = roundtrip(chain("fp16"), update)
    for name, array in update.items():
        # 11 significant bits: half a unit in the last place is 2^-11; below 2^-14, values are 2^-24 apart.
        bound = np.maximum(np.abs(array.astype(np.float64)) * 2**-11, 2**-25)
        assert (np.abs(again[name].astype(np.float64) - array) <= bound).all()


@quickly
@given(UPDATES, SEEDS, LEVELS)
def test_an_int8_value_is_off_by_at_most_one_step_of_its_row(update, seed, levels):
    again, encoded = roundtrip(chain({"name": "int8", "levels": levels}), update, seed)
    for name, array in update.items():
        if not is_coded(array.shape):
            assert same(again[name], array)
            continue
        codes, _ = decode_groups(encoded.groups)["model"].coded_rows(name, 0, len(array))
        assert codes.dtype == np.int8
        assert np.abs(codes.astype(int)).max() <= levels
        largest = np.abs(array.astype(np.float64)).reshape(len(array), -1).max(axis=1)
        # A step is at least the smallest normal float32; 1e-6 bounds the rounding of its division.
        step = np.maximum(largest / levels * (1 + 1e-6), 1.2e-38).reshape(-1, *[1] * (array.ndim - 1))
        assert (np.abs(again[name].astype(np.float64) - array) <= step).all()
        assert not again[name][array == 0].any()


def test_stochastic_rounding_is_unbiased():
    # 7 levels of 0.1: 0.23 is rounded to 0.2 with probability 0.7 and to 0.3 with 0.3: a deviation of
    # sqrt(0.3 * 0.7) * 0.1 = 0.046 each, 0.00046 for the mean of 10,000. The row's largest number is exact.
    row = np.full((1, 10_001), 0.23, np.float32)
    row[0, 0] = 0.7
    again, _ = roundtrip(chain({"name": "int8", "levels": 7}), {"w": row}, seed=5)
    assert again["w"][0, 0] == np.float32(0.7)
    assert set(np.round(again["w"][0], 6)) == {0.2, 0.3, 0.7} or len(set(np.round(again["w"][0], 5))) == 3
    assert abs(again["w"][0, 1:].mean(dtype=np.float64) - 0.23) < 5 * 0.00046


@quickly
@given(
    arrays(np.float32, array_shapes(min_dims=2, max_dims=3, max_side=9), elements=NUMBERS), SEEDS, st.data()
)
def test_rows_do_not_depend_on_the_block_that_is_read(array, seed, data):
    codes = chain("int8").encode({"w": array}, seed).groups["model"]
    start = data.draw(st.integers(0, len(array)))
    stop = data.draw(st.integers(start, len(array)))
    assert same(rows_of(codes, "w", start, stop), codes["w"][start:stop])


def test_rounding_is_determined_by_the_seed():
    array = np.random.default_rng(0).normal(size=(20, 50)).astype(np.float32)
    first, again, other = (
        chain("int8").encode({"w": array}, seed).groups["model"]["w"] for seed in (1, 1, 2)
    )
    assert same(first, again)
    assert not same(first, other)
    assert not same(
        quantization.draw_uniform(1, "w", 0, (4, 9)), quantization.draw_uniform(1, "v", 0, (4, 9))
    )


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("codec", ["fp16", "int8", "top-k"])
def test_a_number_that_is_not_finite_stays_non_finite(codec, odd):
    array = np.ones((3, 4), np.float32)
    array[1, 2] = odd
    again, _ = roundtrip(chain(codec), {"w": array})
    assert not np.isfinite(again["w"]).all()


# --- several codes to a byte ---
@pytest.mark.parametrize(("levels", "codes"), [(1, 5), (2, 3), (3, 2), (7, 2), (8, 1), (127, 1)])
def test_as_many_codes_share_a_byte_as_fit(levels, codes):
    assert quantization.per_byte(levels) == codes
    assert (2 * levels + 1) ** codes <= 256 < (2 * levels + 1) ** (codes + 1)
    assert quantization.row_bytes(11, levels) * codes >= 11 > (quantization.row_bytes(11, levels) - 1) * codes


@quickly
@given(st.data(), st.integers(1, 7), st.integers(0, 5), st.integers(1, 23))
def test_packed_codes_are_unpacked_exactly(data, levels, rows, width):
    codes = data.draw(arrays(np.int8, (rows, width), elements=st.integers(-levels, levels)))
    held = quantization.pack_codes(codes, levels)
    assert held.shape == (rows, quantization.row_bytes(width, levels))
    assert held.max(initial=0) <= quantization.largest_byte(levels)
    assert same(quantization.unpack_codes(held, levels, width), codes)


def test_the_highest_digit_is_the_first_code_and_missing_codes_are_zero():
    # Base 3, five codes to a byte, the last of them missing: 1, 0, -1, 1 and 0.
    assert quantization.pack_codes(np.array([[1, 0, -1, 1]], np.int8), 1).tolist() == [
        [2 * 81 + 27 + 0 + 2 * 3 + 1]
    ]
    # Base 15, two codes to a byte: 7 and -7, then -7 and a missing code.
    assert quantization.pack_codes(np.array([[7, -7, -7]], np.int8), 7).tolist() == [
        [14 * 15 + 0, 0 * 15 + 7]
    ]


@quickly
@given(UPDATES, SEEDS, st.integers(1, 7))
def test_packed_codes_equal_unpacked_codes(update, seed, levels):
    named = {"name": "int8", "levels": levels}
    again, _ = roundtrip(chain(named), update, seed)
    alone = decode_groups(in_codes(quantization.Int8(levels), update, seed))["model"]
    for name in update:
        assert same(again[name], alone[name])


def test_a_large_array_packed_in_blocks_has_the_same_codes():
    array = np.random.default_rng(0).normal(size=(3, 300_000)).astype(np.float32)
    groups = chain({"name": "int8", "levels": 1}).encode({"w": array}, 4).groups
    held, codes = groups["model"]["w"], in_codes(quantization.Int8(1), {"w": array}, 4)["model"]["w"]
    assert held.shape == (3, 60_000)
    assert same(quantization.unpack_codes(held, 1, 300_000), codes)


# --- top-k ---
@quickly
@given(UPDATES, st.floats(0.01, 1))
def test_sent_values_and_residual_add_up_to_the_update(update, share):
    again, encoded = roundtrip(chain({"name": "top-k", "share": share}), update)
    for name, array in update.items():
        if not is_coded(array.shape):
            assert same(again[name], array)
            continue
        left, sent = encoded.residual[name], again[name]
        assert same(sent + left, array)
        assert not (sent.astype(bool) & left.astype(bool)).any()
        assert np.count_nonzero(sent) <= TopK(share).count(array.size)
        if np.count_nonzero(left):
            assert np.abs(sent[sent != 0]).min(initial=np.inf) >= np.abs(left).max()


@quickly
@given(st.lists(arrays(np.float32, (3, 5), elements=st.integers(-64, 64)), min_size=1, max_size=6))
def test_over_rounds_error_feedback_loses_nothing(rounds):
    # Sums of integers in float32 are exact, so sent values and residual add up to the input.
    codecs, left, sent = chain({"name": "top-k", "share": 0.2}), {}, np.zeros((3, 5), np.float32)
    for array in rounds:
        again, encoded = roundtrip(codecs, {"w": array}, residual=left)
        left, sent = encoded.residual, sent + again["w"]
    assert same(sent + left["w"], np.sum(rounds, axis=0, dtype=np.float32))


@quickly
@given(UPDATES, SEEDS, st.sampled_from([("top-k", "int8", "zstd"), ("top-k", "fp16"), ("delta", "top-k")]))
def test_the_residual_of_a_chain_is_the_update_minus_the_decoded_one(update, seed, named):
    again, encoded = roundtrip(chain(*named), update, seed)
    for name, array in update.items():
        if is_coded(array.shape):
            assert same(encoded.residual[name], array - again[name])


@quickly
@given(
    arrays(
        np.float32,
        array_shapes(min_dims=2, max_dims=4, max_side=7),
        elements=st.sampled_from([0, 0, 0, 1, -2.5]),
    )
)
def test_a_sparse_parameter_is_restored_exactly(array):
    assert same(to_dense(to_sparse(array), array.shape), array)


@quickly
@given(UPDATES, SEEDS, st.data())
def test_any_rows_of_a_file_can_be_read(tmp_path_factory, update, seed, data):
    few = {"name": "int8", "levels": data.draw(st.integers(1, 8))}
    named = data.draw(st.sampled_from([("int8",), (few,), ("fp16",), ("top-k",), ("top-k", "int8")]))
    encoded = chain(*named).encode(update, seed)
    path = tmp_path_factory.mktemp("rows") / "blob"
    path.write_bytes(encode_groups({group: dict(parts) for group, parts in encoded.groups.items()}))
    file, whole = decode_groups(FileGroups(path))["model"], decode_groups(encoded.groups)["model"]
    for name, array in update.items():
        rows = len(array) if array.ndim else 1
        start = data.draw(st.integers(0, rows if array.ndim else 0))
        stop = data.draw(st.integers(start, rows)) if array.ndim else 1
        expected = whole[name][start:stop] if array.ndim else whole[name]
        assert same(rows_of(file, name, start, stop), expected)


# --- compressed files ---
@quickly
@given(UPDATES, st.integers(1, 19))
def test_packing_is_lossless(tmp_path_factory, update, level):
    folder = tmp_path_factory.mktemp("packed")
    plain, packed, again = io.BytesIO(), folder / "packed", io.BytesIO()
    write_tensors(plain, update)
    with packed.open("wb") as file:
        digest = Zstd(level).write(file, update)
    assert digest == hashlib.sha256(packed.read_bytes()).hexdigest()
    assert is_compressed(packed)
    unpack(packed, again)
    assert again.getvalue() == plain.getvalue()


def packed(path: Path, data: bytes) -> Path:
    """Write a file with one Zstandard frame."""
    import zstandard

    path.write_bytes(zstandard.ZstdCompressor().compress(data))
    return path


def test_a_file_that_unpacks_beyond_its_limit_is_refused(tmp_path):
    bomb, out = packed(tmp_path / "bomb", bytes(50_000_000)), io.BytesIO()
    assert bomb.stat().st_size < 5000
    with pytest.raises(PeerError) as refused:
        unpack(bomb, out, limit=3_000_000)
    assert refused.value.reason == "oversized"
    assert len(out.getvalue()) <= 3_000_000


@pytest.mark.parametrize("damage", ["flipped", "followed", "no frame"])
def test_a_damaged_file_is_refused(tmp_path, damage):
    data = packed(tmp_path / "blob", np.random.default_rng(0).bytes(10_000)).read_bytes()
    wrong = {
        "flipped": data[:4] + bytes([data[4] ^ 0xFF]) + data[5:],
        "followed": data + b"more",
        "no frame": MAGIC + b"not a frame",
    }[damage]
    (tmp_path / "blob").write_bytes(wrong)
    with pytest.raises(PeerError):
        unpack(tmp_path / "blob", io.BytesIO(), limit=10**6)


def test_a_file_that_is_cut_off_holds_no_groups(tmp_path):
    whole = packed(tmp_path / "blob", encode_groups({"model": {"w": np.arange(5000, dtype=np.float32)}}))
    whole.write_bytes(whole.read_bytes()[:-100])
    with (tmp_path / "cut").open("wb") as file:
        unpack(whole, file)
    with pytest.raises(PeerError):
        len(FileGroups(tmp_path / "cut"))


def test_a_frame_with_a_large_window_is_refused(tmp_path):
    import zstandard

    far = zstandard.ZstdCompressionParameters.from_level(3, window_log=27)
    (tmp_path / "blob").write_bytes(zstandard.ZstdCompressor(compression_params=far).compress(bytes(2**28)))
    with pytest.raises(PeerError):
        unpack(tmp_path / "blob", io.BytesIO(), limit=2**29)


def test_a_store_names_a_packed_blob_by_its_packed_bytes(tmp_path):
    store, codecs = BlobStore(tmp_path), chain("int8", "zstd")
    update = {"w": np.random.default_rng(0).normal(size=(64, 500)).astype(np.float32)}
    ref = store.put_groups(codecs.encode(update, 3).groups, write=codecs.write)
    data = store.blob_path(ref.digest).read_bytes()
    assert (ref.digest, ref.size) == (hashlib.sha256(data).hexdigest(), len(data))
    assert ref.size < update["w"].nbytes / 4


# --- codec names and options ---
def test_codecs_may_be_named_in_their_order_only():
    assert list(CODECS) == ["delta", "top-k", "fp16", "int8", "zstd"]
    assert chain("delta", {"name": "top-k", "share": 0.1}, "int8", "zstd").sparsifier == TopK(0.1)
    assert chain().lossy is chain("zstd").lossy is chain("delta").lossy is False


@pytest.mark.parametrize(
    ("named", "message"),
    [
        (["int9"], "unknown codec 'int9' (did you mean 'int8'?)"),
        (["zstd", "int8"], 'codecs work in the order in which they are named: write ["int8", "zstd"]'),
        (["fp16", "int8"], "'fp16' and 'int8' both say how a number is written: leave one out"),
        (["int8", "int8"], "a codec is named twice: name it once"),
        ([{"name": "int8", "level": 7}], "codec 'int8' has no option 'level' (did you mean 'levels'?)"),
        ([{"name": "int8", "levels": 200}], "codec 'int8': levels is a whole number from 1 to 127, not 200"),
        ([{"name": "top-k", "share": 0}], "codec 'top-k': share is above 0 and at most 1, not 0"),
        ([{"name": "zstd", "level": "high"}], "codec 'zstd': level is a whole number from 1 to 19, not high"),
    ],
)
def test_wrong_codecs_are_refused_with_a_remedy(named, message):
    with pytest.raises(ConfigError) as error:
        chain(*named)
    assert str(error.value) == f"uplink: {message}"


def test_no_update_is_larger_than_its_codecs_may_make_it():
    rng = np.random.default_rng(0)
    update = {
        "w": rng.normal(size=(16, 9, 3)).astype(np.float32),
        "b": rng.normal(size=16).astype(np.float32),
    }
    few = [[{"name": "int8", "levels": levels}] for levels in (1, 2, 7, 8)]
    for named in ([], ["fp16"], ["int8"], *few, ["top-k"], [{"name": "top-k", "share": 1}, "int8"]):
        codecs = chain(*named)
        groups = codecs.encode(update, 0).groups
        size = sum(array.nbytes for parts in groups.values() for array in parts.values())
        assert size <= sum(codecs.most_bytes(array.shape) for array in update.values())
        assert {group for group in groups if group != "model"} == set(codecs.parts)


def test_each_row_has_its_own_step():
    # Largest values 2 and 0.5 with 4 levels give steps 0.5 and 0.125; a row of zeros has step 0.
    rows = np.array([[2, -1], [0.25, -0.5], [0, 0]], np.float32)
    assert quantization.Int8(4).scales(rows).tolist() == [0.5, 0.125, 0]
