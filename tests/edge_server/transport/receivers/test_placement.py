"""A receiver writes only chunks that the server expects."""

from pathlib import Path

import pytest

from edge_client.storage.blob_store import BlobStore
from edge_server.transport.receivers.messages import Expect, Placed
from edge_server.transport.receivers.process import MAX_EARLY, ChunkPlacement
from schemas.tensors.chunks import BlobRef, Chunk, digest_of
from tests.chunk_bits import chunks_of

# Three chunks: 1024, 1024 and 452 bytes.
DATA = bytes(range(250)) * 10
REF = BlobRef(digest=digest_of(DATA), size=len(DATA), chunk_bytes=1024)


def chunk(index: int, ref: BlobRef = REF, data: bytes = DATA) -> Chunk:
    return Chunk(ref.digest[:16], index, data[index * 1024 : (index + 1) * 1024])


def placed(index: int, size: int) -> Placed:
    return Placed(device="a", prefix=REF.digest[:16], index=index, size=size)


@pytest.fixture
def store(tmp_path: Path) -> BlobStore:
    return BlobStore(tmp_path, durable=False)


def test_two_receivers_assemble_one_blob(store: BlobStore, tmp_path: Path) -> None:
    first, second = ChunkPlacement(BlobStore(tmp_path)), ChunkPlacement(BlobStore(tmp_path))
    for receiver in (first, second):
        assert receiver.expect(Expect(device="a", blob=REF)) == []
    assert first.take("a", chunk(2)) == [placed(2, 452)]
    assert second.take("a", chunk(0)) == [placed(0, 1024)]
    assert store.present(REF) == chunks_of(0b101)
    assert first.take("a", chunk(1)) == [placed(1, 1024)]
    assert store.verify(REF)


def test_an_early_chunk_waits_for_the_expect_message(store: BlobStore) -> None:
    receiver = ChunkPlacement(store)
    assert receiver.take("a", chunk(0)) == []
    assert receiver.take("b", chunk(1)) == []
    assert store.present(REF) == chunks_of(0)
    assert receiver.expect(Expect(device="a", blob=REF)) == [placed(0, 1024)]
    assert store.present(REF) == chunks_of(0b001)


def test_only_the_latest_early_chunks_are_stored(store: BlobStore) -> None:
    receiver = ChunkPlacement(store)
    receiver.take("a", chunk(0))
    for _ in range(MAX_EARLY):
        receiver.take("b", chunk(1))
    assert receiver.expect(Expect(device="a", blob=REF)) == []


def test_only_the_last_claimed_blob_of_a_device_is_expected(store: BlobStore) -> None:
    other = BlobRef(digest=digest_of(b"other"), size=5, chunk_bytes=1024)
    receiver = ChunkPlacement(store)
    receiver.expect(Expect(device="a", blob=REF))
    receiver.expect(Expect(device="a", blob=other))
    assert receiver.take("a", chunk(0)) == []
    assert store.present(REF) == chunks_of(0)


@pytest.mark.parametrize("wrong", [Chunk(REF.digest[:16], 3, b"x"), Chunk(REF.digest[:16], 1, b"short")])
def test_a_chunk_that_does_not_fit_is_reported_and_not_written(store: BlobStore, wrong: Chunk) -> None:
    receiver = ChunkPlacement(store)
    receiver.expect(Expect(device="a", blob=REF))
    assert receiver.take("a", wrong) == [placed(wrong.index, len(wrong.data))]
    assert store.parts() == set()
