"""Each closed round is written once; a failing writer never ends the run."""

import logging
import threading
from pathlib import Path
from typing import Any

import pytest

from edge_server.observability.trackers import writers
from edge_server.observability.trackers.registry import make_writer, tracker_watcher
from edge_server.observability.trackers.writers import LAST, RunFacts, WriterThread, flat, folder_id, scalars
from edge_server.storage.records import RoundRecord, Summary
from schemas.errors import ConfigError
from tests.edge_server.observability.terminal.shown import record, snapshot, summary


class RecordingWriter:
    """A writer that records its calls; its destination already has `existing` rounds."""

    def __init__(self, existing: int = 0) -> None:
        self.existing, self.facts = existing, None
        self.rounds: list[int] = []
        self.ended: list[Summary | None] = []

    def begin(self, facts: RunFacts) -> int:
        self.facts = facts
        return self.existing

    def round(self, record: RoundRecord) -> None:
        self.rounds.append(record.round)

    def end(self, summary: Summary | None) -> None:
        self.ended.append(summary)


class Broken(RecordingWriter):
    """A writer whose destination fails from the second round on."""

    def round(self, record: RoundRecord) -> None:
        super().round(record)
        if record.round == 2:
            raise ConnectionError("the tracking server is away\nand more")


class Hanging(RecordingWriter):
    """A writer that hangs until `let_go` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.let_go = threading.Event()

    def begin(self, facts: RunFacts) -> int:
        self.let_go.wait()
        return 0


def moments(*closed: int, **fields: Any) -> list[Any]:
    return [snapshot(history=tuple(record(n) for n in range(1, last + 1)), **fields) for last in closed]


def write_snapshots(writer: Any, out: Path, shown: list[Any], patience_s: float = 60.0) -> None:
    thread = WriterThread("test", writer, out)
    for moment in shown:
        thread.show(moment)
    thread.close(patience_s)


def test_each_round_is_written_once_and_then_the_end(tmp_path: Path) -> None:
    writer = RecordingWriter()
    write_snapshots(writer, tmp_path, [*moments(0, 1, 1, 3), *moments(3, summary=summary())])
    assert writer.rounds == [1, 2, 3]
    assert [end.outcome for end in writer.ended] == ["finished"]


def test_a_resumed_run_writes_only_the_missing_rounds(tmp_path: Path) -> None:
    writer = RecordingWriter(existing=2)
    write_snapshots(writer, tmp_path, moments(3, 4))
    assert writer.rounds == [3, 4]
    assert writer.ended == [None]


def test_a_failure_is_logged_in_one_line_and_the_run_continues(tmp_path: Path, caplog) -> None:
    broken = Broken()
    write_snapshots(broken, tmp_path, moments(1, 2, 3, 4))
    assert broken.rounds == [1, 2]
    (line,) = [
        record
        for record in caplog.records
        if record.levelno == logging.WARNING and "stopped writing" in record.message
    ]
    assert line.message == "test stopped writing, the run continues: the tracking server is away"


def test_a_hanging_writer_is_given_up(tmp_path: Path, caplog) -> None:
    hanging = Hanging()
    try:
        write_snapshots(hanging, tmp_path, moments(1), patience_s=0.01)
        assert "test has not written everything after 0.01 s; giving up" in caplog.messages
    finally:
        hanging.let_go.set()


def test_a_run_that_never_began_writes_nothing(tmp_path: Path) -> None:
    writer = RecordingWriter()
    write_snapshots(writer, tmp_path, [])
    assert (writer.facts, writer.rounds, writer.ended) == (None, [], [])


def test_the_facts_contain_the_run_and_its_settings(tmp_path: Path) -> None:
    (tmp_path / "federation.toml").write_text("[clients]\nfraction = 0.5\n[tiers]\nratios = [0.5, 0.0]\n")
    writer = RecordingWriter()
    write_snapshots(writer, tmp_path, moments(0))
    assert writer.facts == RunFacts(
        "home",
        "r1",
        f"r1-{folder_id(tmp_path)}",
        10,
        tmp_path,
        {"clients.fraction": 0.5, "tiers.ratios": [0.5, 0.0]},
    )


def test_the_id_of_a_run_folder_is_stable_and_unique(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    first, second = folder_id(tmp_path / "one"), folder_id(tmp_path / "two")
    assert first != second
    assert folder_id(tmp_path / "one") == first


def test_settings_are_flat() -> None:
    assert flat({"a": {"b": {"c": 1}}, "d": "x"}) == {"a.b.c": 1, "d": "x"}


def test_only_measured_numbers_of_a_round_are_written() -> None:
    found = scalars(record(1, test_accuracy=0.5, tier_accuracy={2: 0.25}, dropped=("x",)))
    assert found == {
        "test/accuracy": 0.5,
        "tier-2/accuracy": 0.25,
        "bytes/up": 12_300_000.0,
        "bytes/down": 6_650_000.0,
        "devices/selected": 2.0,
        "devices/counted": 2.0,
        "devices/missed": 1.0,
        "devices/refused": 0.0,
        LAST: 4.2,
    }
    assert list(found)[-1] == LAST


def test_an_unknown_writer_suggests_the_nearest_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--write tensorbord=x: there is no writer.*tensorboard"):
        make_writer("tensorbord=x")


def test_a_writer_needs_a_destination() -> None:
    with pytest.raises(ConfigError, match="name the destination"):
        make_writer("tensorboard")


def test_a_missing_package_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(target: str) -> Any:
        raise ModuleNotFoundError("no", name="mlflow")

    monkeypatch.setitem(writers.WRITERS, "mlflow", missing)
    with pytest.raises(ConfigError, match=r"needs mlflow.*pip install 'edge-federation\[mlflow\]'"):
        make_writer("mlflow=sqlite:///x")


def test_every_named_writer_receives_the_rounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: dict[str, RecordingWriter] = {}

    def make(target: str) -> RecordingWriter:
        made[target] = RecordingWriter()
        return made[target]

    monkeypatch.setattr(writers, "WRITERS", {"tensorboard": make})
    with tracker_watcher(["tensorboard=a", "tensorboard=b"], tmp_path) as watcher:
        watcher.show(moments(2)[0])
    assert {target: writer.rounds for target, writer in made.items()} == {"a": [1, 2], "b": [1, 2]}
