"""Blobs on disk are stored under their digest only after verification."""

import errno
import os
import random

import pytest

from edge_client.storage.blob_store import BlobStore, RunningDigest
from edge_client.storage.file_recycling import SUFFIX
from schemas.tensors.chunks import CHUNK_BYTES, BlobRef, decode_chunk, digest_of
from tests.chunk_bits import chunks_of

CHUNK = 1024
DATA = random.Random(0).randbytes(3 * CHUNK + 10)
REF = BlobRef(digest=digest_of(DATA), size=len(DATA), chunk_bytes=CHUNK)


@pytest.fixture(params=["new files", "reused files"])
def store(tmp_path, request) -> BlobStore:
    """A store that writes new files, and one that reuses a spare file with longer content."""
    folder = tmp_path / "deep" / "blobs"
    made = BlobStore(folder, writes_over=request.param == "reused files")
    (folder / "old").write_bytes(b"\xff" * 2 * len(DATA))
    made.keep_only(frozenset())
    return made


def pieces(data: bytes = DATA) -> list[tuple[int, bytes]]:
    return [(index, data[index * CHUNK : (index + 1) * CHUNK]) for index in range(REF.chunks)]


def write(store: BlobStore, data: bytes = DATA, order=(2, 0, 3, 1)) -> None:
    for index in order:
        store.write_chunk(REF, *pieces(data)[index])


def names(store: BlobStore) -> set[str]:
    """The names of all files except spares."""
    return {path.name for path in store.blob_path(REF.digest).parent.iterdir() if path.suffix != SUFFIX}


def test_a_blob_is_stored_under_its_digest(store):
    ref = store.put_blob(DATA, chunk_bytes=CHUNK)
    assert ref == REF
    assert ref.digest in store
    assert store.blob_path(ref.digest).read_bytes() == DATA
    assert store.digests() == {ref.digest}
    assert names(store) == {ref.digest}


def test_the_same_bytes_are_stored_once(store):
    store.put_blob(DATA)
    before = store.blob_path(REF.digest).stat()
    assert store.put_blob(DATA, chunk_bytes=CHUNK).chunk_bytes == CHUNK
    assert store.blob_path(REF.digest).stat().st_mtime_ns == before.st_mtime_ns
    assert store.put_blob(DATA).chunk_bytes == CHUNK_BYTES


def test_a_new_store_finds_existing_blobs(store, tmp_path):
    store.put_blob(DATA)
    assert BlobStore(tmp_path / "deep" / "blobs").digests() == {REF.digest}


def test_chunks_in_any_order_become_the_blob_after_verification(store):
    write(store)
    assert REF.digest not in store
    assert store.digests() == frozenset()
    assert store.verify(REF)
    assert REF.digest in store
    assert store.blob_path(REF.digest).read_bytes() == DATA
    assert names(store) == {REF.digest}


def test_a_duplicate_chunk_is_only_written_again(store):
    write(store, order=(0, 1, 1, 2, 3, 0))
    assert store.verify(REF)


def test_chunks_of_two_sizes_become_the_blob(store):
    """A half-size chunk 1 arrives at the point where hashing expects the full-size chunk 1."""
    halved = REF.model_copy(update={"chunk_bytes": CHUNK // 2})
    write(store, order=(1, 0))
    store.write_chunk(halved, 1, DATA[CHUNK // 2 : CHUNK])
    write(store, order=(2, 3))
    assert store.verify(REF)


def test_a_store_that_only_writes_hashes_nothing(store, monkeypatch):
    hashed = []
    monkeypatch.setattr(RunningDigest, "add", lambda self, data: hashed.append(data))
    write(BlobStore(store.directory, only_writes=True), order=(0, 1, 2, 3))
    assert hashed == []
    assert BlobStore(store.directory).verify(REF)


def test_a_transfer_resumes_in_the_part_file_of_an_earlier_process(store, tmp_path):
    write(store, order=(0, 2))
    again = BlobStore(tmp_path / "deep" / "blobs")
    write(again, order=(1, 3))
    assert again.verify(REF)


def test_a_blob_that_does_not_match_its_digest_is_removed(store):
    write(store, bytes(len(DATA)))
    assert not store.verify(REF)
    assert REF.digest not in store
    assert names(store) == set()
    write(store)
    assert store.verify(REF)


def test_a_blob_that_arrived_in_order_is_not_read_again(store, monkeypatch):
    write(store, order=(0, 1, 2, 3))
    read = "edge_client.storage.blob_store.file_sha256"
    monkeypatch.setattr(read, lambda _: pytest.fail("the blob was read"))
    assert store.verify(REF)


@pytest.mark.parametrize("forget", [BlobStore.keep_only, BlobStore.drop_parts])
def test_a_blob_whose_first_chunks_were_removed_fails_verification(tmp_path, forget):
    store = BlobStore(tmp_path)
    for index in (0, 1):
        store.write_chunk(REF, *pieces()[index])
    forget(store, frozenset())
    for index in (2, 3):
        store.write_chunk(REF, *pieces()[index])
    assert not store.verify(REF)


def test_the_last_bytes_of_a_repeated_chunk_count(store):
    write(store, order=(0, 1, 2, 3))
    store.write_chunk(REF, 1, bytes(CHUNK))
    assert not store.verify(REF)


def test_a_blob_with_a_missing_chunk_is_removed(store):
    write(store, order=(0, 1, 3))
    assert not store.verify(REF)
    assert names(store) == set()


def test_a_blob_whose_size_differs_from_its_reference_is_removed(store):
    wrong = REF.model_copy(update={"size": len(DATA) + 1})
    write(store)
    assert not store.verify(wrong)
    assert names(store) == set()


def test_chunks_are_read_as_frames(store):
    store.put_blob(DATA)
    chunks = [decode_chunk(store.read_frame(REF, index)) for index in range(REF.chunks)]
    assert [(chunk.prefix, chunk.index) for chunk in chunks] == [(REF.digest[:16], i) for i in range(4)]
    assert b"".join(chunk.data for chunk in chunks) == DATA


def test_a_missing_blob_cannot_be_read(store):
    with pytest.raises(OSError, match=REF.digest[:8]):
        store.read_frame(REF, 0)


def test_only_named_blobs_are_kept(store):
    kept, gone = store.put_blob(b"kept"), store.put_blob(b"gone")
    write(store, order=(0,))
    store.keep_only(frozenset({kept.digest}))
    assert store.digests() == {kept.digest}
    assert names(store) == {kept.digest}
    store.keep_only(frozenset())
    assert gone.digest not in store
    assert names(store) == set()


def test_the_part_file_of_a_named_blob_is_kept(store):
    write(store, order=(0,))
    store.keep_only(frozenset({REF.digest}))
    assert names(store) == {f"{REF.digest}.part", f"{REF.digest}.chunks"}


def lists(store: BlobStore):
    return store.blob_path(f"{REF.digest}.chunks")


def part(store: BlobStore):
    return store.blob_path(f"{REF.digest}.part")


def test_existing_chunks_are_found_again(store, tmp_path):
    assert store.present(REF) == chunks_of(0)
    write(store, order=(3, 0))
    again = BlobStore(tmp_path / "deep" / "blobs")
    assert again.present(REF) == chunks_of(0b1001)
    write(again, order=(1,))
    assert again.present(REF) == chunks_of(0b1011)
    write(again, order=(2,))
    assert again.present(REF) == chunks_of(0b1111)


def test_all_chunks_of_a_stored_blob_are_present(store):
    store.put_blob(DATA, chunk_bytes=CHUNK)
    assert store.present(REF) == chunks_of(0b1111)
    assert store.present(REF.model_copy(update={"size": len(DATA) + 1})) == chunks_of(0)


@pytest.mark.parametrize("left", [b"", DATA[:-1], bytes(len(DATA))])
def test_a_blob_damaged_by_a_power_cut_is_dropped(store, left):
    store.put_blob(DATA)
    sound = store.put_blob(b"other")
    store.blob_path(REF.digest).write_bytes(left)
    store.drop_damaged()
    assert store.digests() == {sound.digest}


def test_a_chunk_lost_in_a_power_cut_is_not_present(store):
    write(store, order=(0, 1, 2, 3))
    with part(store).open("r+b") as file:
        file.seek(CHUNK)
        file.write(bytes(CHUNK))
        file.truncate(3 * CHUNK + 4)
    # Chunk 1 is zeros now, chunk 3 is cut short.
    assert store.present(REF) == chunks_of(0b0101)


@pytest.mark.parametrize(
    ("damage", "present"),
    [
        (lambda data: b"", 0),
        (lambda data: data[:3], 0),
        (lambda data: data[:12], 0b0001),
        (lambda data: bytes(len(data)), 0),
        (lambda data: bytes(8) + data[8:], 0b1110),
        (lambda data: b"\xff" * 16 + data[16:], 0b1100),
        (lambda data: data[8:16] + data[8:], 0b1110),
        (lambda data: data + b"some more", 0b1111),
    ],
    ids=["empty", "short", "torn", "zeros", "a hole", "noise", "hash of another chunk", "too long"],
)
def test_a_damaged_list_of_chunks_loses_only_those_chunks(store, damage, present):
    write(store, order=(0, 1, 2, 3))
    lists(store).write_bytes(damage(lists(store).read_bytes()))
    assert store.present(REF) == chunks_of(present)
    write(store, order=[index for index in range(4) if not present >> index & 1])
    assert store.present(REF) == chunks_of(0b1111)
    assert store.verify(REF)


def test_without_a_chunk_list_or_a_part_file_nothing_is_present(store):
    write(store)
    lists(store).unlink()
    assert store.present(REF) == chunks_of(0)
    write(store)
    part(store).unlink()
    assert store.present(REF) == chunks_of(0)


def test_chunks_of_another_size_do_not_count(store):
    write(store, order=(0, 1))
    assert store.present(REF.model_copy(update={"chunk_bytes": 2 * CHUNK})) == chunks_of(0)


def test_a_blob_may_be_verified_again(store):
    write(store)
    assert store.verify(REF)
    assert store.verify(REF)
    # The state after the process was killed right after the rename.
    write(store, order=(0,))
    assert store.verify(REF)
    assert names(store) == {REF.digest}
    assert not store.verify(REF.model_copy(update={"size": len(DATA) + 1}))
    assert store.blob_path(REF.digest).read_bytes() == DATA


def test_a_missing_blob_fails_verification(store):
    assert not store.verify(REF)


def test_a_partial_write_is_completed(store, monkeypatch):
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda where, data, offset: pwrite(where, data[:100], offset))
    write(store)
    assert store.present(REF) == chunks_of(0b1111)
    assert store.verify(REF)


def test_a_disk_that_fills_up_within_a_chunk_raises_and_the_chunk_is_not_present(store, monkeypatch):
    pwrite_all, free = os.pwrite, [CHUNK + 8 + 100]

    def pwrite(where: int, data: bytes, offset: int) -> int:
        count = min(len(data), free[0])
        if count == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        free[0] -= count
        return pwrite_all(where, data[:count], offset)

    monkeypatch.setattr(os, "pwrite", pwrite)
    write(store, order=(0,))
    with pytest.raises(OSError, match="No space left"):
        write(store, order=(1,))
    assert store.present(REF) == chunks_of(0b0001)


def test_a_part_file_is_not_a_blob(store):
    write(store, order=(0,))
    assert store.digests() == frozenset()
    assert REF.digest not in store


def test_the_same_bytes_from_two_senders_are_stored_once(tmp_path):
    """The first sender's verification removes the part file while chunks of the second are in flight."""
    store, data = BlobStore(tmp_path), bytes(range(256)) * 16
    ref = BlobRef(digest=digest_of(data), size=len(data), chunk_bytes=1024)
    for index in range(ref.chunks):
        store.write_chunk(ref, index, data[index * 1024 : (index + 1) * 1024])
    assert store.verify(ref)
    store.write_chunk(ref, ref.chunks - 1, data[-1024:])
    assert store.verify(ref)
    assert store.blob_path(ref.digest).read_bytes() == data
    assert [path.name for path in tmp_path.iterdir()] == [ref.digest]


def test_a_blob_without_any_chunk_fails_verification(tmp_path):
    assert not BlobStore(tmp_path).verify(BlobRef(digest=digest_of(b"never sent"), size=10))


# --- reuse of files ---
def whole(store: BlobStore, data: bytes) -> BlobRef:
    """Write a blob in chunks and verify it."""
    ref = BlobRef(digest=digest_of(data), size=len(data), chunk_bytes=CHUNK)
    for index in range(ref.chunks):
        store.write_chunk(ref, index, data[index * CHUNK : (index + 1) * CHUNK])
    assert store.verify(ref)
    return ref


def files(folder) -> dict[str, int]:
    return {path.name: path.stat().st_ino for path in folder.iterdir()}


@pytest.fixture
def over(tmp_path) -> BlobStore:
    return BlobStore(tmp_path, writes_over=True)


def test_files_of_removed_blobs_are_reused_for_the_next_blob(over, tmp_path):
    whole(over, DATA)
    over.keep_only(frozenset())
    before = files(tmp_path)
    ref = whole(over, DATA[::-1])
    assert files(tmp_path)[ref.digest] in before.values()
    assert set(files(tmp_path).values()) == set(before.values())


def test_a_shorter_blob_is_not_followed_by_earlier_content(over):
    whole(over, DATA)
    over.keep_only(frozenset())
    ref = whole(over, DATA[: CHUNK + 5])
    assert over.blob_path(ref.digest).read_bytes() == DATA[: CHUNK + 5]


def test_chunks_of_an_earlier_blob_do_not_count_for_the_next_one(over):
    """Chunks with identical bytes do not count either, because nobody sent them for the new blob."""
    whole(over, DATA)
    over.keep_only(frozenset())
    longer = DATA + b"more"
    ref = BlobRef(digest=digest_of(longer), size=len(longer), chunk_bytes=CHUNK)
    over.write_chunk(ref, 2, longer[2 * CHUNK : 3 * CHUNK])
    assert over.present(ref) == chunks_of(0b0100)


def test_a_file_with_another_hard_link_is_not_overwritten(over, tmp_path):
    ref, kept = whole(over, DATA), tmp_path.parent / "kept"
    os.link(over.blob_path(ref.digest), kept)
    over.keep_only(frozenset())
    whole(over, DATA[::-1])
    assert kept.read_bytes() == DATA


def test_spares_not_used_before_the_next_cleanup_are_removed(over, tmp_path):
    whole(over, DATA)
    over.keep_only(frozenset())
    assert len(files(tmp_path)) == 2
    over.keep_only(frozenset())
    assert files(tmp_path) == {}


def test_a_file_is_not_reused_before_its_removal_is_synced(over, tmp_path, monkeypatch):
    """A chunk written by another thread during `keep_only` reuses none of the removed files."""
    ref = whole(over, DATA)
    forgotten = over.blob_path(ref.digest).stat().st_ino
    coming = BlobRef(digest=digest_of(b"coming"), size=6, chunk_bytes=CHUNK)

    def sync(folder) -> None:
        over.write_chunk(coming, 0, b"coming")
        assert forgotten not in {files(folder)[f"{coming.digest}.{part}"] for part in ("part", "chunks")}

    with monkeypatch.context() as late:
        late.setattr("edge_client.storage.blob_store.sync", sync)
        over.keep_only(frozenset({coming.digest}))
    assert over.verify(coming)


def test_spares_are_removed_on_close_and_by_the_next_store_after_a_kill(over, tmp_path):
    whole(over, DATA)
    over.keep_only(frozenset())
    BlobStore(tmp_path, writes_over=True)
    assert files(tmp_path) == {}
    # The first store does not know that its spares are gone, and creates new files.
    ref = whole(over, DATA)
    over.close()
    assert files(tmp_path).keys() == {ref.digest}
    over.keep_only(frozenset())
    over.close()
    assert files(tmp_path) == {}
