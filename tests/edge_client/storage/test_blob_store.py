"""Blobs on disk: under their digest only when they are what it says."""

import errno
import os
import random

import pytest

from edge_client.storage.blob_store import BlobStore
from edge_client.storage.file_recycling import SUFFIX
from schemas.tensors.blobs import CHUNK_BYTES, BlobRef, decode_chunk, digest_of

CHUNK = 1024
DATA = random.Random(0).randbytes(3 * CHUNK + 10)
REF = BlobRef(digest=digest_of(DATA), size=len(DATA), chunk_bytes=CHUNK)


@pytest.fixture(params=["afresh", "over"])
def store(tmp_path, request) -> BlobStore:
    """One that writes new files, and one that begins with a spare in which something longer lies."""
    folder = tmp_path / "deep" / "blobs"
    made = BlobStore(folder, writes_over=request.param == "over")
    (folder / "old").write_bytes(b"\xff" * 2 * len(DATA))
    made.keep_only(frozenset())
    return made


def pieces(data: bytes = DATA) -> list[tuple[int, bytes]]:
    return [(index, data[index * CHUNK : (index + 1) * CHUNK]) for index in range(REF.chunks)]


def write(store: BlobStore, data: bytes = DATA, order=(2, 0, 3, 1)) -> None:
    for index in order:
        store.write_chunk(REF, *pieces(data)[index])


def names(store: BlobStore) -> set[str]:
    """Of all files but spares."""
    return {path.name for path in store.path(REF.digest).parent.iterdir() if path.suffix != SUFFIX}


def test_what_is_put_is_there_under_its_digest(store):
    ref = store.put(DATA, chunk_bytes=CHUNK)
    assert ref == REF
    assert ref.digest in store
    assert store.path(ref.digest).read_bytes() == DATA
    assert store.digests() == {ref.digest}
    assert names(store) == {ref.digest}


def test_the_same_bytes_are_kept_once(store):
    store.put(DATA)
    before = store.path(REF.digest).stat()
    assert store.put(DATA, chunk_bytes=CHUNK).chunk_bytes == CHUNK
    assert store.path(REF.digest).stat().st_mtime_ns == before.st_mtime_ns
    assert store.put(DATA).chunk_bytes == CHUNK_BYTES


def test_a_store_is_found_again(store, tmp_path):
    store.put(DATA)
    assert BlobStore(tmp_path / "deep" / "blobs").digests() == {REF.digest}


def test_chunks_in_any_order_become_the_blob_once_they_are_checked(store):
    write(store)
    assert REF.digest not in store
    assert store.digests() == frozenset()
    assert store.verify(REF)
    assert REF.digest in store
    assert store.path(REF.digest).read_bytes() == DATA
    assert names(store) == {REF.digest}


def test_a_doubled_chunk_is_only_written_again(store):
    write(store, order=(0, 1, 1, 2, 3, 0))
    assert store.verify(REF)


def test_chunks_of_two_sizes_that_together_come_in_order_become_the_blob(store):
    """One sender's chunk 1 of half the size comes where the other's chunk 1 would be next to be hashed."""
    halved = REF.model_copy(update={"chunk_bytes": CHUNK // 2})
    write(store, order=(1, 0))
    store.write_chunk(halved, 1, DATA[CHUNK // 2 : CHUNK])
    write(store, order=(2, 3))
    assert store.verify(REF)


def test_a_store_that_only_writes_hashes_nothing(store, monkeypatch):
    hashed = []
    monkeypatch.setattr("edge_client.storage.blob_store._Running.add", lambda self, data: hashed.append(data))
    write(BlobStore(store.directory, only_writes=True), order=(0, 1, 2, 3))
    assert hashed == []
    assert BlobStore(store.directory).verify(REF)


def test_a_transfer_goes_on_in_the_part_file_that_an_earlier_process_left(store, tmp_path):
    write(store, order=(0, 2))
    again = BlobStore(tmp_path / "deep" / "blobs")
    write(again, order=(1, 3))
    assert again.verify(REF)


def test_a_blob_that_is_not_what_it_says_is_thrown_away(store):
    write(store, bytes(len(DATA)))
    assert not store.verify(REF)
    assert REF.digest not in store
    assert names(store) == set()
    write(store)
    assert store.verify(REF)


def test_a_blob_that_came_in_order_is_not_read_again(store, monkeypatch):
    write(store, order=(0, 1, 2, 3))
    monkeypatch.setattr("edge_client.storage.blob_store._sha256", lambda _: pytest.fail("it was read"))
    assert store.verify(REF)


@pytest.mark.parametrize("forget", [BlobStore.keep_only, BlobStore.drop_parts])
def test_the_rest_of_a_blob_whose_beginning_was_forgotten_is_not_sound(tmp_path, forget):
    store = BlobStore(tmp_path)
    for index in (0, 1):
        store.write_chunk(REF, *pieces()[index])
    forget(store, frozenset())
    for index in (2, 3):
        store.write_chunk(REF, *pieces()[index])
    assert not store.verify(REF)


def test_of_a_chunk_that_comes_again_the_last_bytes_count(store):
    write(store, order=(0, 1, 2, 3))
    store.write_chunk(REF, 1, bytes(CHUNK))
    assert not store.verify(REF)


def test_a_blob_with_a_hole_is_thrown_away(store):
    write(store, order=(0, 1, 3))
    assert not store.verify(REF)
    assert names(store) == set()


def test_a_blob_of_another_size_than_its_reference_is_thrown_away(store):
    wrong = REF.model_copy(update={"size": len(DATA) + 1})
    write(store)
    assert not store.verify(wrong)
    assert names(store) == set()


def test_chunks_are_read_as_the_frames_to_send(store):
    store.put(DATA)
    chunks = [decode_chunk(store.read_frame(REF, index)) for index in range(REF.chunks)]
    assert [(chunk.prefix, chunk.index) for chunk in chunks] == [(REF.digest[:16], i) for i in range(4)]
    assert b"".join(chunk.data for chunk in chunks) == DATA


def test_a_blob_that_is_not_there_cannot_be_read(store):
    with pytest.raises(OSError, match=REF.digest[:8]):
        store.read_frame(REF, 0)


def test_only_what_is_named_is_kept(store):
    kept, gone = store.put(b"kept"), store.put(b"gone")
    write(store, order=(0,))
    store.keep_only(frozenset({kept.digest}))
    assert store.digests() == {kept.digest}
    assert names(store) == {kept.digest}
    store.keep_only(frozenset())
    assert gone.digest not in store
    assert names(store) == set()


def test_what_is_there_of_a_blob_is_kept_with_its_name(store):
    write(store, order=(0,))
    store.keep_only(frozenset({REF.digest}))
    assert names(store) == {f"{REF.digest}.part", f"{REF.digest}.chunks"}


def lists(store: BlobStore):
    return store.path(f"{REF.digest}.chunks")


def part(store: BlobStore):
    return store.path(f"{REF.digest}.part")


def test_the_chunks_that_are_there_are_found_again(store, tmp_path):
    assert store.present(REF) == 0
    write(store, order=(3, 0))
    again = BlobStore(tmp_path / "deep" / "blobs")
    assert again.present(REF) == 0b1001
    write(again, order=(1,))
    assert again.present(REF) == 0b1011
    write(again, order=(2,))
    assert again.present(REF) == 0b1111


def test_a_blob_in_the_store_is_present_whole(store):
    store.put(DATA, chunk_bytes=CHUNK)
    assert store.present(REF) == 0b1111
    assert store.present(REF.model_copy(update={"size": len(DATA) + 1})) == 0


@pytest.mark.parametrize("left", [b"", DATA[:-1], bytes(len(DATA))])
def test_a_blob_of_which_a_power_cut_left_the_name_is_dropped(store, left):
    store.put(DATA)
    sound = store.put(b"other")
    store.path(REF.digest).write_bytes(left)
    store.drop_damaged()
    assert store.digests() == {sound.digest}


def test_a_chunk_that_a_power_cut_took_is_not_present(store):
    write(store, order=(0, 1, 2, 3))
    with part(store).open("r+b") as file:
        file.seek(CHUNK)
        file.write(bytes(CHUNK))
        file.truncate(3 * CHUNK + 4)
    # Chunk 1 is zeros now, chunk 3 is cut short.
    assert store.present(REF) == 0b0101


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
    ids=["empty", "short", "torn", "zeros", "a hole", "noise", "of another chunk", "too long"],
)
def test_a_damaged_list_of_chunks_costs_chunks_and_no_more(store, damage, present):
    write(store, order=(0, 1, 2, 3))
    lists(store).write_bytes(damage(lists(store).read_bytes()))
    assert store.present(REF) == present
    write(store, order=[index for index in range(4) if not present >> index & 1])
    assert store.present(REF) == 0b1111
    assert store.verify(REF)


def test_without_a_list_or_without_a_part_nothing_is_present(store):
    write(store)
    lists(store).unlink()
    assert store.present(REF) == 0
    write(store)
    part(store).unlink()
    assert store.present(REF) == 0


def test_chunks_of_another_size_are_not_taken_for_these(store):
    write(store, order=(0, 1))
    assert store.present(REF.model_copy(update={"chunk_bytes": 2 * CHUNK})) == 0


def test_a_blob_may_be_verified_again(store):
    write(store)
    assert store.verify(REF)
    assert store.verify(REF)
    # What was left when the process was killed right after the rename.
    write(store, order=(0,))
    assert store.verify(REF)
    assert names(store) == {REF.digest}
    assert not store.verify(REF.model_copy(update={"size": len(DATA) + 1}))
    assert store.path(REF.digest).read_bytes() == DATA


def test_what_is_not_there_at_all_is_not_sound(store):
    assert not store.verify(REF)


def test_a_disk_that_takes_only_a_piece_is_asked_for_the_rest(store, monkeypatch):
    whole = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda where, data, offset: whole(where, data[:100], offset))
    write(store)
    assert store.present(REF) == 0b1111
    assert store.verify(REF)


def test_a_disk_that_is_full_in_mid_chunk_says_so_and_the_chunk_is_not_present(store, monkeypatch):
    whole, room = os.pwrite, [CHUNK + 8 + 100]

    def pwrite(where: int, data: bytes, offset: int) -> int:
        taken = min(len(data), room[0])
        if taken == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        room[0] -= taken
        return whole(where, data[:taken], offset)

    monkeypatch.setattr(os, "pwrite", pwrite)
    write(store, order=(0,))
    with pytest.raises(OSError, match="No space left"):
        write(store, order=(1,))
    assert store.present(REF) == 0b0001


def test_a_part_file_is_no_blob(store):
    write(store, order=(0,))
    assert store.digests() == frozenset()
    assert REF.digest not in store


def test_bytes_that_two_send_are_kept_once_whoever_comes_first(tmp_path):
    """The first one's check takes the part away while the second one's chunks are still on their way."""
    store, data = BlobStore(tmp_path), bytes(range(256)) * 16
    ref = BlobRef(digest=digest_of(data), size=len(data), chunk_bytes=1024)
    for index in range(ref.chunks):
        store.write_chunk(ref, index, data[index * 1024 : (index + 1) * 1024])
    assert store.verify(ref)
    store.write_chunk(ref, ref.chunks - 1, data[-1024:])
    assert store.verify(ref)
    assert store.path(ref.digest).read_bytes() == data
    assert [path.name for path in tmp_path.iterdir()] == [ref.digest]


def test_a_blob_of_which_nothing_came_is_not_there(tmp_path):
    assert not BlobStore(tmp_path).verify(BlobRef(digest=digest_of(b"never sent"), size=10))


# --- written over ---
def whole(store: BlobStore, data: bytes) -> BlobRef:
    """A blob that came in chunks."""
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


def test_files_of_what_is_forgotten_are_those_of_what_comes_next(over, tmp_path):
    whole(over, DATA)
    over.keep_only(frozenset())
    before = files(tmp_path)
    ref = whole(over, DATA[::-1])
    assert files(tmp_path)[ref.digest] in before.values()
    assert set(files(tmp_path).values()) == set(before.values())


def test_a_shorter_blob_is_not_followed_by_what_lay_there(over):
    whole(over, DATA)
    over.keep_only(frozenset())
    ref = whole(over, DATA[: CHUNK + 5])
    assert over.path(ref.digest).read_bytes() == DATA[: CHUNK + 5]


def test_chunks_of_what_lay_there_are_not_taken_for_those_of_the_next_blob(over):
    """Not even if they are the same: nobody has sent them for it."""
    whole(over, DATA)
    over.keep_only(frozenset())
    longer = DATA + b"more"
    ref = BlobRef(digest=digest_of(longer), size=len(longer), chunk_bytes=CHUNK)
    over.write_chunk(ref, 2, longer[2 * CHUNK : 3 * CHUNK])
    assert over.present(ref) == 0b0100


def test_a_file_that_is_kept_elsewhere_too_is_not_written_over(over, tmp_path):
    ref, kept = whole(over, DATA), tmp_path.parent / "kept"
    os.link(over.path(ref.digest), kept)
    over.keep_only(frozenset())
    whole(over, DATA[::-1])
    assert kept.read_bytes() == DATA


def test_what_is_not_needed_until_the_next_forgetting_is_removed(over, tmp_path):
    whole(over, DATA)
    over.keep_only(frozenset())
    assert len(files(tmp_path)) == 2
    over.keep_only(frozenset())
    assert files(tmp_path) == {}


def test_nothing_is_written_over_before_its_name_is_off_the_disk(over, tmp_path, monkeypatch):
    """Another thread's chunk comes while blobs are forgotten: it takes none of their files."""
    ref = whole(over, DATA)
    forgotten = over.path(ref.digest).stat().st_ino
    coming = BlobRef(digest=digest_of(b"coming"), size=6, chunk_bytes=CHUNK)

    def sync(folder) -> None:
        over.write_chunk(coming, 0, b"coming")
        assert forgotten not in {files(folder)[f"{coming.digest}.{part}"] for part in ("part", "chunks")}

    with monkeypatch.context() as late:
        late.setattr("edge_client.storage.blob_store.sync", sync)
        over.keep_only(frozenset({coming.digest}))
    assert over.verify(coming)


def test_spares_end_with_the_store_and_those_of_one_that_was_killed_with_the_next(over, tmp_path):
    whole(over, DATA)
    over.keep_only(frozenset())
    BlobStore(tmp_path, writes_over=True)
    assert files(tmp_path) == {}
    # The first one does not know: it makes new files.
    ref = whole(over, DATA)
    over.close()
    assert files(tmp_path).keys() == {ref.digest}
    over.keep_only(frozenset())
    over.close()
    assert files(tmp_path) == {}
