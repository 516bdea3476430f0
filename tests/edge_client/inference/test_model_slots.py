"""A/B slots: one complete model is in use after any power cut."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from edge_client.inference.model_slots import ServedModel, SlotIsEmpty, Slots
from edge_client.security.trusted_key import check_model
from edge_client.storage.atomic_files import sweep
from schemas.errors import ConfigError
from schemas.tensors.chunks import digest_of
from tests.edge_client.signed import SERVER, TRUSTED, manifest_of

OLD, NEW, NEWER = b"the first model" * 9, b"the second model" * 9, b"the third model" * 9


def note(data: bytes, **more: Any) -> ServedModel:
    return ServedModel(version="3", digest=digest_of(data), **more)


def take(slots: Slots, data: bytes) -> None:
    slots.fill(data, note(data))
    slots.switch(digest_of(data))


def serves(slots: Slots) -> bytes | None:
    served = slots.current()
    return None if served is None else served.read()


@pytest.fixture
def slots(tmp_path: Path) -> Slots:
    return Slots(tmp_path / "serving")


def test_nothing_is_served_at_first(slots: Slots) -> None:
    assert slots.current() is None
    assert slots.waiting() is None
    assert slots.back() is None
    assert slots.spare() == slots.folder / "a"


def test_a_filled_slot_is_served_only_after_the_switch(slots: Slots) -> None:
    take(slots, OLD)
    slots.fill(NEW, note(NEW, variant="int8", parent=digest_of(OLD), accuracy=0.5, why="fastest"))
    assert serves(slots) == OLD
    assert slots.waiting().model.accuracy == 0.5
    switched = slots.switch(digest_of(NEW))
    assert (switched.slot, serves(slots)) == ("b", NEW)
    assert slots.current().model.why == "fastest"


def test_a_repeated_switch_changes_nothing(slots: Slots) -> None:
    take(slots, OLD)
    take(slots, NEW)
    slots.switch(digest_of(NEW))
    assert serves(slots) == NEW
    assert slots.back().read() == OLD


def test_back_returns_to_the_previous_model_only_once(slots: Slots) -> None:
    take(slots, OLD)
    take(slots, NEW)
    assert slots.back().read() == OLD
    assert slots.back() is None
    assert serves(slots) == OLD


def test_back_never_returns_to_a_model_that_has_not_been_served(slots: Slots) -> None:
    take(slots, OLD)
    take(slots, NEW)
    slots.fill(NEWER, note(NEWER))
    assert slots.back() is None
    assert serves(slots) == NEW


def test_only_the_requested_model_is_switched_to(slots: Slots) -> None:
    take(slots, OLD)
    slots.fill(NEW, note(NEW))
    with pytest.raises(SlotIsEmpty, match="holds no whole model"):
        slots.switch(digest_of(NEWER))
    assert serves(slots) == OLD


def test_bytes_that_do_not_match_the_note_leave_the_slot_unchanged(slots: Slots) -> None:
    take(slots, OLD)
    slots.fill(NEW, note(NEW))
    with pytest.raises(SlotIsEmpty, match="are not those of"):
        slots.fill(NEWER, note(OLD))
    assert slots.waiting().read() == NEW


@pytest.mark.parametrize("name", ["model.onnx", "model.json"])
@pytest.mark.parametrize("damage", [None, b"", b"{}"])
def test_a_damaged_slot_counts_as_empty_and_the_previous_model_is_served(
    slots: Slots, name: str, damage: bytes | None
) -> None:
    take(slots, OLD)
    take(slots, NEW)
    victim = slots.folder / "b" / name
    victim.unlink() if damage is None else victim.write_bytes(damage)
    assert serves(slots) == OLD
    assert slots.spare() == victim.parent
    # The damaged slot can be filled again.
    take(slots, NEWER)
    assert serves(slots) == NEWER


@pytest.mark.parametrize("damage", [b"", b"{", b'{"slot": "c"}', b'{"slot": "../a", "digest": "0"}'])
def test_a_damaged_current_file_serves_nothing_until_the_next_switch(slots: Slots, damage: bytes) -> None:
    take(slots, OLD)
    (slots.folder / "current.json").write_bytes(damage)
    assert slots.current() is None
    take(slots, NEW)
    assert serves(slots) == NEW


def test_a_reader_retries_during_a_switch(slots: Slots, monkeypatch: pytest.MonkeyPatch) -> None:
    take(slots, OLD)
    other, whole = Slots(slots.folder), slots.read_slot

    def meanwhile(slot: Any, digest: str | None = None) -> Any:
        monkeypatch.setattr(slots, "read_slot", whole)
        take(other, NEW)
        take(other, NEWER)
        return whole(slot, digest)

    monkeypatch.setattr(slots, "read_slot", meanwhile)
    assert serves(slots) == NEWER


def test_a_manifest_is_stored_with_its_own_model_only(slots: Slots) -> None:
    old, new = (SERVER.sign(manifest_of(data)) for data in (OLD, NEW))
    slots.fill(OLD, note(OLD), signed=old)
    path = slots.switch(digest_of(OLD)).path
    assert check_model(path, OLD, TRUSTED) == old.manifest
    assert not slots.sign(new)
    take(slots, NEW)
    with pytest.raises(ConfigError, match="no signed manifest"):
        check_model(slots.current().path, NEW, TRUSTED)
    assert slots.sign(new)
    assert check_model(slots.current().path, NEW, TRUSTED) == new.manifest


def without_links(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a FAT file system."""

    def refuse(path: Path, target: str) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "symlink_to", refuse)


@pytest.mark.parametrize("linked", [True, False])
def test_the_export_of_a_variant_is_shown_beside_it_and_gone_with_it(
    slots: Slots, monkeypatch: pytest.MonkeyPatch, linked: bool
) -> None:
    if not linked:
        without_links(monkeypatch)
    slots.fill(NEW, note(NEW, variant="int8", parent=digest_of(OLD)), export=OLD)
    slots.switch(digest_of(NEW))
    shown = slots.folder.parent / "models" / "model.fp32.onnx"
    assert shown.read_bytes() == OLD
    take(slots, NEWER)
    assert not shown.exists()
    assert slots.back().read() == NEW
    assert shown.read_bytes() == OLD
    take(slots, NEWER)
    assert list(slots.folder.rglob("model.fp32.onnx")) == [slots.folder / "a" / "model.fp32.onnx"]


# --- power cuts ---
class PowerCut(BaseException):
    """An exception that no code catches."""


@contextmanager
def failing_power(folder: Path, patch: pytest.MonkeyPatch, at: int) -> Iterator[list[str]]:
    """A power cut in step `at`: a write stops half way, and unsynced data are lost."""
    steps: list[str] = []
    synced = {path.lstat().st_ino for path in folder.rglob("*")}
    opened, replaced, unlinked, fsynced = Path.open, Path.replace, Path.unlink, os.fsync

    def step(what: str, half: Callable[[], object] = lambda: None) -> None:
        steps.append(what)
        if len(steps) - 1 == at:
            half()
            raise PowerCut(what)

    def write_bytes(path: Path, data: bytes) -> int:
        def half() -> None:
            with opened(path, "wb") as file:
                file.write(data[: len(data) // 2])

        step(f"write {path.name}", half)
        with opened(path, "wb") as file:
            return file.write(data)

    def replace(path: Path, target: Path) -> Path:
        step(f"replace {target.name}")
        return replaced(path, target)

    def unlink(path: Path, missing_ok: bool = False) -> None:
        # A dead process removes nothing; removing a temporary file of a write is not counted as a step.
        if len(steps) <= at and not path.name.endswith(".part"):
            step(f"unlink {path.name}")
        if len(steps) <= at:
            unlinked(path, missing_ok=missing_ok)

    def fsync(descriptor: int) -> None:
        step("sync")
        fsynced(descriptor)
        synced.add(os.fstat(descriptor).st_ino)

    with patch.context() as patched:
        patched.setattr(Path, "write_bytes", write_bytes)
        patched.setattr(Path, "replace", replace)
        patched.setattr(Path, "unlink", unlink)
        patched.setattr(os, "fsync", fsync)
        try:
            yield steps
        finally:
            for path in folder.rglob("*"):
                if path.is_file() and path.stat().st_ino not in synced:
                    path.write_text("")


def change(slots: Slots) -> None:
    slots.fill(NEW, note(NEW), signed=SERVER.sign(manifest_of(NEW)))
    slots.switch(digest_of(NEW))


def test_after_any_power_cut_one_complete_model_is_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_at, served_after = 0, []
    while True:
        slots = Slots(tmp_path / f"cut-{cut_at}" / "serving")
        take(slots, OLD)
        with failing_power(slots.folder, monkeypatch, cut_at) as steps, suppress(PowerCut):
            change(slots)
        if len(steps) <= cut_at:
            break
        served_after.append(serves(slots))
        # The next start repairs and completes the switch.
        sweep(slots.folder.parent)
        slots.show()
        shown = slots.folder.parent / "models" / "model.onnx"
        assert shown.read_bytes() == serves(slots), steps
        change(slots)
        assert serves(slots) == shown.read_bytes() == NEW, steps
        assert slots.back().read() == OLD, steps
        assert list(slots.folder.rglob("*.part")) == [], steps
        cut_at += 1
    # Four files, each written, synced, renamed and its folder synced, and two folders' names; an earlier
    # variant's export is removed. Then the sync after current.json is renamed, the links to the slot and to
    # its manifest, renamed and synced, and the one to the export, removed.
    assert len(served_after) == cut_at == 4 * 4 + 2 + 1 + 2 * 2 + 1
    assert served_after == [OLD] * (cut_at - 6) + [NEW] * 6


def test_after_a_power_cut_during_back_one_complete_model_is_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Written, synced, renamed, the folder synced; then the link renamed, the folder synced.
    for cut_at, served in enumerate([NEW, NEW, NEW, OLD, OLD, OLD]):
        slots = Slots(tmp_path / f"cut-{cut_at}" / "serving")
        take(slots, OLD)
        take(slots, NEW)
        with failing_power(slots.folder, monkeypatch, cut_at), pytest.raises(PowerCut):
            slots.back()
        assert serves(slots) == served
