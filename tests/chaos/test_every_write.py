"""The server crashes at each disk write of a run, once before the write and once in the middle of it.

Each time it is restarted until the run ends: the model is bit-equal, every acknowledged update is in
it, none counts twice, and the history has no gap.
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
from tests.chaos.single_process import TIERS, SingleProcessServer, final_model, make_devices
from tests.slow import slow

EVERY = int(os.environ.get("CHAOS_EVERY_WRITE", "25"))
"""The server crashes at every n-th write; `make chaos` sets 1."""


class Killed(BaseException):
    """A simulated SIGKILL, which no handler of the product catches."""


@contextmanager
def crash_at(monkeypatch: pytest.MonkeyPatch, at: int | None) -> Iterator[list[str]]:
    """Record the disk writes, and crash in write number `at`."""
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
        # `write_bytes` calls it too.
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
    """A file whose first write can be cut in half by a crash."""

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
    """A connection that can crash before each commit."""

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
    *("federation.name=single", "data.source=digits", "test-samples=20", "num-clients=2", "min-clients=2"),
    *("quorum=1", "batch-size=8", "local-epochs=1", "model.name=mlp"),
]
IN_ROUNDS = load_config("attending", [*WORDS, "rounds=2", "deliver-every=1"])
CHANGES = load_config(
    "heterofl", [*WORDS, "rounds=2", "deliver=none", 'strategy.downlink=["delta", "int8", "zstd"]']
)
"""Round two sends the change since round one; it must be applied to exactly the model that devices hold."""
TESTED = load_config("heterofl", [*WORDS, "rounds=2", "deliver=none", "testers=1"])
"""A process tests the model of a round while the next one is planned."""
BUFFERED = load_config("fedbuff", [*WORDS, "rounds=3", "buffer-size=1", "deliver=none"])


@pytest.fixture(scope="module")
def devices(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return make_devices(tmp_path_factory.mktemp("devices"))


def run_with_crash(
    folder: Path, config: Config, devices: Any, monkeypatch: pytest.MonkeyPatch, at: int | None
) -> int:
    """A whole run with a crash at write `at`, if any; returns the number of writes before it."""
    for device in devices.values():
        device.acknowledged.clear()
    with crash_at(monkeypatch, at) as writes, suppress(Killed):
        server = SingleProcessServer(folder, config, devices)
        try:
            server.run()
        finally:
            server.coordinator.tests.close()
    if not (folder / "summary.json").exists():
        SingleProcessServer(folder, config, devices).run()
    return len(writes)


def figures(folder: Path) -> list[dict[str, Any]]:
    """What the server's tests found, by round."""
    lines = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if "test" in key or "tier" in key} for line in lines]


def check(folder: Path, config: Config) -> list[ClosedRound]:
    """Check the invariants of a finished run; returns its rounds."""
    with closing(JournalReader(folder / "journal.sqlite")) as reader:
        rounds, deliveries = reader.rounds(), reader.deliveries()
        explained = [(choice.attempt, choice.round) for choice in reader.choices()]
        planned = [
            (planning.attempt, planning.round) for planning in reader.plannings() if not planning.deliver
        ]
        observed = [observation.round for observation in reader.observations()]
    numbers = list(range(1, config.federation.rounds + 1))
    assert [closed.round for closed in rounds] == numbers
    counted = [(update.device, update.attempt) for closed in rounds for update in closed.updates]
    assert len(counted) == len(set(counted))
    if config.federation.deliver_every:
        assert {(delivery.device, delivery.round) for delivery in deliveries} == set(product(TIERS, numbers))
    history = (folder / "history.jsonl").read_text().splitlines()
    assert [json.loads(line)["round"] for line in history] == numbers
    assert explained == planned
    assert observed == numbers
    assert (folder / "summary.json").exists()
    assert final_model(folder, numbers[-1]) == rounds[-1].state_sha256
    assert {result.verdict for result in replay(folder)} == {ReplayVerdict.AGREES}
    return rounds


@pytest.mark.parametrize(
    ("config", "every"), [(IN_ROUNDS, EVERY), slow(CHANGES, 3 * EVERY - 2), slow(TESTED, 3 * EVERY - 1)]
)
def test_a_crash_at_any_write_changes_nothing(
    tmp_path: Path, devices: Any, monkeypatch: pytest.MonkeyPatch, config: Config, every: int
) -> None:
    writes = run_with_crash(tmp_path / "undisturbed", config, devices, monkeypatch, None)
    undisturbed = [closed.state_sha256 for closed in check(tmp_path / "undisturbed", config)]
    assert writes > 40
    for at in range(0, writes, every):
        folder = tmp_path / f"crash-at-{at}"
        run_with_crash(folder, config, devices, monkeypatch, at)
        rounds = check(folder, config)
        assert [closed.state_sha256 for closed in rounds] == undisturbed, f"crash at write {at}"
        assert figures(folder) == figures(tmp_path / "undisturbed"), f"crash at write {at}"
        made_of = {update.digest for closed in rounds for update in closed.updates}
        assert all(device.acknowledged <= made_of for device in devices.values()), f"crash at write {at}"


def test_a_crash_in_buffered_rounds_counts_no_update_twice(
    tmp_path: Path, devices: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash may change which updates meet in a round, but each counts at most once."""
    writes = run_with_crash(tmp_path / "undisturbed", BUFFERED, devices, monkeypatch, None)
    for at in range(2, writes, 2 * EVERY):
        folder = tmp_path / f"crash-at-{at}"
        run_with_crash(folder, BUFFERED, devices, monkeypatch, at)
        check(folder, BUFFERED)
