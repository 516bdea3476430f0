"""The server dies at every single write of a run, once before it and once in the middle of it.

Each time it is started again until the run is over: the same model to the bit, every acknowledged update in
it, none twice, history without a gap.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import edge_server.storage.journal
from edge_server.config.config import Config
from edge_server.config.load import load_config
from edge_server.coordinator.replay import ReplayVerdict, replay
from edge_server.storage.journal_reader import ClosedRound, JournalReader
from tests.chaos.desk import TIERS, Desk, final_model, make_devices

EVERY = int(os.environ.get("CHAOS_EVERY_WRITE", "10"))
"""Every n-th write is died at; 1 is for `make chaos`."""


class Killed(BaseException):
    """The process is gone: nothing catches this."""


@contextmanager
def deadly(monkeypatch: pytest.MonkeyPatch, at: int | None) -> Iterator[list[str]]:
    """Count the writes to disk, and die in that of number `at`."""
    writes: list[str] = []

    def strike(what: str, half: Any = None) -> None:
        writes.append(what)
        if len(writes) - 1 == at:
            if half is not None:
                half()
            raise Killed(what)

    def after(what: str, do: Any) -> Any:
        def done(*args: Any, **more: Any) -> Any:
            strike(what)
            return do(*args, **more)

        return done

    def open_torn(path: Path, mode: str = "r", *args: Any, **more: Any) -> Any:
        file = original(path, mode, *args, **more)
        return Torn(file, partial(strike, f"write {path.name}")) if mode in ("wb", "r+b") else file

    original = Path.open
    with monkeypatch.context() as patched:
        # What `write_bytes` calls as well.
        patched.setattr(Path, "open", open_torn)
        patched.setattr(Path, "replace", after("replace", Path.replace))
        patched.setattr(Path, "unlink", after("unlink", Path.unlink))
        patched.setattr(os, "pwrite", after("pwrite", os.pwrite))
        patched.setattr(os, "link", after("link", os.link))
        patched.setattr(
            edge_server.storage.journal.sqlite3, "connect", lambda *a, **m: Commits(strike, *a, **m)
        )
        yield writes


class Torn:
    """A file of which the first piece may be the last, and half of it at that."""

    def __init__(self, file: Any, strike: Any) -> None:
        self._file, self._strike, self._begun = file, strike, False

    def write(self, data: Any) -> Any:
        if not self._begun:
            self._begun = True
            self._strike(lambda: self._file.write(data[: len(data) // 2]))
        return self._file.write(data)

    def __enter__(self) -> Torn:
        return self

    def __exit__(self, *why: Any) -> None:
        self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class Commits(sqlite3.Connection):
    """A connection whose every commit may be the last thing that did not happen."""

    def __init__(self, strike: Any, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._strike = strike

    def __exit__(self, kind: Any, error: Any, trace: Any) -> Any:
        if kind is None:
            try:
                self._strike("commit")
            except Killed:
                self.rollback()
                raise
        return super().__exit__(kind, error, trace)


WORDS = [
    *("federation.name=desk", "data.source=digits", "test-samples=20", "num-clients=2", "min-clients=2"),
    *("quorum=1", "batch-size=8", "local-epochs=1"),
]
IN_ROUNDS = load_config("attending", [*WORDS, "rounds=2", "deliver-every=1"])
CHANGES = load_config(
    "heterofl", [*WORDS, "rounds=2", "deliver=false", 'strategy.downlink=["delta", "int8", "zstd"]']
)
"""Round two begins from what has changed since round one: as exact as devices have it, or another model."""
BUFFERED = load_config("fedbuff", [*WORDS, "rounds=3", "buffer-size=1", "deliver=false"])


@pytest.fixture(scope="module")
def devices(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return make_devices(tmp_path_factory.mktemp("devices"))


def live_through(
    folder: Path, config: Config, devices: Any, monkeypatch: pytest.MonkeyPatch, at: int | None
) -> int:
    """A whole run that dies at one write; returns how many writes an undisturbed one has."""
    for device in devices.values():
        device.acknowledged.clear()
    with deadly(monkeypatch, at) as writes, suppress(Killed):
        Desk(folder, config, devices).live()
    if not (folder / "summary.json").exists():
        Desk(folder, config, devices).live()
    return len(writes)


def check(folder: Path, config: Config) -> list[ClosedRound]:
    """What must hold of any finished run; returns its rounds."""
    with closing(JournalReader(folder / "journal.sqlite")) as reader:
        rounds, deliveries = reader.rounds(), reader.deliveries()
        explained = [(one.attempt, one.round) for one in reader.choices()]
        planned = [(one.attempt, one.round) for one in reader.plannings() if not one.deliver]
        observed = [one.round for one in reader.observations()]
    numbers = list(range(1, config.federation.rounds + 1))
    assert [one.round for one in rounds] == numbers
    counted = [(one.device, one.attempt) for closed in rounds for one in closed.updates]
    assert len(counted) == len(set(counted))
    if config.federation.deliver_every:
        assert {(one.device, one.round) for one in deliveries} == set(product(TIERS, numbers))
    history = (folder / "history.jsonl").read_text().splitlines()
    assert [json.loads(line)["round"] for line in history] == numbers
    assert explained == planned
    assert observed == numbers
    assert (folder / "summary.json").exists()
    assert final_model(folder, numbers[-1]) == rounds[-1].state_sha256
    assert {one.verdict for one in replay(folder)} == {ReplayVerdict.AGREES}
    return rounds


@pytest.mark.parametrize(("config", "every"), [(IN_ROUNDS, EVERY), (CHANGES, 3 * EVERY - 2)])
def test_a_death_at_any_write_changes_nothing(
    tmp_path: Path, devices: Any, monkeypatch: pytest.MonkeyPatch, config: Config, every: int
) -> None:
    writes = live_through(tmp_path / "undisturbed", config, devices, monkeypatch, None)
    undisturbed = [one.state_sha256 for one in check(tmp_path / "undisturbed", config)]
    assert writes > 40
    for at in range(0, writes, every):
        folder = tmp_path / f"died-at-{at}"
        live_through(folder, config, devices, monkeypatch, at)
        rounds = check(folder, config)
        assert [one.state_sha256 for one in rounds] == undisturbed, f"died at write {at}"
        made_of = {one.digest for closed in rounds for one in closed.updates}
        assert all(device.acknowledged <= made_of for device in devices.values()), f"died at write {at}"


def test_a_death_in_buffered_rounds_counts_nothing_twice(
    tmp_path: Path, devices: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which updates meet in a round may then be others; each update counts once at most."""
    writes = live_through(tmp_path / "undisturbed", BUFFERED, devices, monkeypatch, None)
    for at in range(2, writes, 2 * EVERY):
        folder = tmp_path / f"died-at-{at}"
        live_through(folder, BUFFERED, devices, monkeypatch, at)
        check(folder, BUFFERED)
