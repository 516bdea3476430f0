"""Arrays in pieces: files are byte-identical to the library's, and rows equal those of the whole array."""

import hashlib
import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from safetensors.numpy import save

from schemas.errors import InvariantError, PeerError
from schemas.tensors import files
from schemas.tensors.arrays import ComputedArrays, Prefixed, blocks, kind_of, rows_of

ARRAYS = st.dictionaries(
    st.text('ab/é"\\ ', min_size=1, max_size=6),
    st.sampled_from(list(files.DTYPES.values())).flatmap(
        lambda dtype: npst.arrays(dtype, npst.array_shapes(min_dims=0, min_side=0, max_side=4))
    ),
    max_size=5,
)


@given(ARRAYS)
def test_a_file_is_identical_to_the_librarys(arrays: dict[str, np.ndarray]) -> None:
    file = io.BytesIO()
    digest = files.write_tensors(file, arrays)
    assert file.getvalue() == save(arrays)
    assert digest == hashlib.sha256(save(arrays)).hexdigest() == files.digest_of_tensors(arrays)


def test_lazy_arrays_are_written_like_real_ones_and_computed_in_pieces() -> None:
    whole = np.arange(600_000, dtype=np.float32).reshape(600, 1000)
    requested = []

    def make(name: str, start: int, stop: int) -> np.ndarray:
        requested.append((start, stop))
        return whole[start:stop]

    lazy = ComputedArrays({"w": (whole.dtype, whole.shape)}, make)
    assert files.digest_of_tensors(lazy) == files.digest_of_tensors({"w": whole})
    assert requested == [(0, 262), (262, 524), (524, 600)]  # 262,144 numbers are 262 rows of a thousand
    assert np.array_equal(lazy["w"], whole)


def test_rows_of_a_file_equal_the_rows_of_the_array(tmp_path: Path) -> None:
    arrays = {"g/w": np.arange(24, dtype=np.float32).reshape(4, 3, 2), "g/s": np.array(7, np.int64)}
    (tmp_path / "a").write_bytes(save(arrays))
    file = files.TensorFile(tmp_path / "a")
    assert sorted(file) == ["g/s", "g/w"]
    assert np.array_equal(file.rows("g/w", 1, 3), arrays["g/w"][1:3])
    assert kind_of(file, "g/w") == (np.float32, (4, 3, 2)) == kind_of(arrays, "g/w")
    assert np.array_equal(rows_of(arrays, "g/w", 1, 3), file.rows("g/w", 1, 3))
    inner = Prefixed(file, "g/")
    assert sorted(inner) == ["s", "w"]
    assert inner["s"] == rows_of(inner, "s", 0, 1) == 7


def test_pieces_cover_an_array_once() -> None:
    assert list(blocks((np.dtype("f4"), (5, 2)), 4)) == [(0, 2), (2, 4), (4, 5)]
    assert list(blocks((np.dtype("f4"), (2, 100)), 4)) == [(0, 1), (1, 2)]
    assert list(blocks((np.dtype("f4"), ()), 4)) == [(0, 1)]
    assert list(blocks((np.dtype("f4"), (0, 3)), 4)) == []


@pytest.mark.parametrize("cut", [0, 7, 20, -1])
def test_a_truncated_file_raises_a_peer_error(tmp_path: Path, cut: int) -> None:
    (tmp_path / "a").write_bytes(save({"w": np.ones(9, np.float32)})[:cut])
    with pytest.raises(PeerError, match="not a safetensors blob"):
        files.TensorFile(tmp_path / "a")


def test_a_file_truncated_after_opening_raises_a_peer_error(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(data := save({"w": np.ones(9, np.float32)}))
    file = files.TensorFile(tmp_path / "a")
    (tmp_path / "a").write_bytes(data[:-4])
    with pytest.raises(PeerError, match="cut off"):
        _ = file["w"]


def test_files_with_the_same_header_share_its_parsed_contents(tmp_path: Path) -> None:
    for name, value in (("a", 1), ("b", 2)):
        (tmp_path / name).write_bytes(save({"w": np.full(9, value, np.float32)}))
    assert files.TensorFile(tmp_path / "a").kind("w") is files.TensorFile(tmp_path / "b").kind("w")


def test_a_header_too_large_for_a_model_is_not_cached(tmp_path: Path) -> None:
    # Each tensor occupies more than 50 bytes of the header.
    many = {f"{number}": np.ones(0, np.float32) for number in range(files.MAX_SHARED_HEADER_BYTES // 50)}
    (tmp_path / "a").write_bytes(save(many))
    assert files.TensorFile(tmp_path / "a").kind("7") is not files.TensorFile(tmp_path / "a").kind("7")


def test_an_unsupported_dtype_is_refused() -> None:
    with pytest.raises(InvariantError, match="complex64"):
        files.digest_of_tensors({"w": np.ones(2, np.complex64)})


def test_data_in_memory_is_read_instead_of_the_file(tmp_path: Path) -> None:
    path, arrays = tmp_path / "file", {"a": np.arange(12, dtype=np.int8).reshape(4, 3), "b": np.float32(2)}
    path.write_bytes(save({name: np.asarray(array) for name, array in arrays.items()}))
    in_memory = files.TensorFile(path, memoryview(path.read_bytes()))
    path.write_bytes(b"")
    assert (in_memory.rows("a", 1, 3) == arrays["a"][1:3]).all()
    assert in_memory["b"] == 2
    assert in_memory["b"].shape == ()


@pytest.mark.parametrize("data", [b"", b"1234567", (2**63).to_bytes(8, "little")])
def test_data_too_short_for_its_header_raises_a_peer_error(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(data)
    for in_memory in (None, memoryview(data)):
        with pytest.raises(PeerError):
            files.TensorFile(path, in_memory)


def test_a_cached_header_is_refused_for_a_file_of_another_size(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(save({"a": np.arange(12)}))
    files.TensorFile(path)
    with path.open("ab") as file:
        file.write(b"more")
    with pytest.raises(PeerError):
        files.TensorFile(path)
