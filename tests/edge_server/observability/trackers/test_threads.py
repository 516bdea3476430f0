"""Each closed round is written once, whatever writers do; the run is never theirs to end."""

import argparse
import logging
import threading
from pathlib import Path
from typing import Any

import pytest

from edge_server.observability.trackers import registry
from edge_server.observability.trackers.interface import LAST, RunFacts, scalars
from edge_server.observability.trackers.registry import make_writer
from edge_server.observability.trackers.threads import WriterThread, flat, folder_id
from edge_server.observability.watchers import _trackers
from edge_server.storage.records import RoundRecord, Summary
from schemas.errors import ConfigError
from tests.edge_server.observability.terminal.shown import record, snapshot, summary


class Kept:
    """A writer that keeps what it is told; it has `there` rounds already."""

    def __init__(self, there: int = 0) -> None:
        self.there, self.facts = there, None
        self.rounds: list[int] = []
        self.ended: list[Summary | None] = []

    def begin(self, facts: RunFacts) -> int:
        self.facts = facts
        return self.there

    def round(self, record: RoundRecord) -> None:
        self.rounds.append(record.round)

    def end(self, summary: Summary | None) -> None:
        self.ended.append(summary)


class Broken(Kept):
    """A writer whose destination is away from its second round on."""

    def round(self, record: RoundRecord) -> None:
        super().round(record)
        if record.round == 2:
            raise ConnectionError("the tracking server is away\nand more")


class Hanging(Kept):
    """A writer that never comes back."""

    def __init__(self) -> None:
        super().__init__()
        self.let_go = threading.Event()

    def begin(self, facts: RunFacts) -> int:
        self.let_go.wait()
        return 0


def moments(*closed: int, **fields: Any) -> list[Any]:
    return [snapshot(history=tuple(record(n) for n in range(1, last + 1)), **fields) for last in closed]


def written(writer: Any, out: Path, shown: list[Any], patience_s: float = 60.0) -> None:
    writing = WriterThread("test", writer, out)
    for moment in shown:
        writing.show(moment)
    writing.close(patience_s)


def test_each_round_is_told_once_and_then_the_end(tmp_path: Path) -> None:
    kept = Kept()
    written(kept, tmp_path, [*moments(0, 1, 1, 3), *moments(3, summary=summary())])
    assert kept.rounds == [1, 2, 3]
    assert [one.outcome for one in kept.ended] == ["finished"]


def test_a_run_that_goes_on_tells_what_is_not_there_yet(tmp_path: Path) -> None:
    kept = Kept(there=2)
    written(kept, tmp_path, moments(3, 4))
    assert kept.rounds == [3, 4]
    assert kept.ended == [None]


def test_what_fails_is_told_in_one_line_and_the_run_goes_on(tmp_path: Path, caplog) -> None:
    broken = Broken()
    written(broken, tmp_path, moments(1, 2, 3, 4))
    assert broken.rounds == [1, 2]
    (line,) = [
        one for one in caplog.records if one.levelno == logging.WARNING and "stopped writing" in one.message
    ]
    assert line.message == "test stopped writing, the run continues: the tracking server is away"


def test_one_that_hangs_is_given_up(tmp_path: Path, caplog) -> None:
    hanging = Hanging()
    try:
        written(hanging, tmp_path, moments(1), patience_s=0.01)
        assert "test has not written everything after 0.01 s; giving up" in caplog.messages
    finally:
        hanging.let_go.set()


def test_a_run_that_never_began_writes_nothing(tmp_path: Path) -> None:
    kept = Kept()
    written(kept, tmp_path, [])
    assert (kept.facts, kept.rounds, kept.ended) == (None, [], [])


def test_the_facts_are_the_runs_and_its_settings(tmp_path: Path) -> None:
    (tmp_path / "federation.toml").write_text("[clients]\nfraction = 0.5\n[tiers]\nratios = [0.5, 0.0]\n")
    kept = Kept()
    written(kept, tmp_path, moments(0))
    assert kept.facts == RunFacts(
        "home",
        "r1",
        f"r1-{folder_id(tmp_path)}",
        10,
        tmp_path,
        {"clients.fraction": 0.5, "tiers.ratios": [0.5, 0.0]},
    )


def test_a_run_folder_keeps_its_name_and_no_other_has_it(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    one, two = folder_id(tmp_path / "one"), folder_id(tmp_path / "two")
    assert one != two
    assert folder_id(tmp_path / "one") == one


def test_settings_are_flat() -> None:
    assert flat({"a": {"b": {"c": 1}}, "d": "x"}) == {"a.b.c": 1, "d": "x"}


def test_the_numbers_of_a_round_are_those_that_were_measured() -> None:
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


def test_an_unknown_writer_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--write tensorbord=x: there is no writer.*tensorboard"):
        make_writer("tensorbord=x")


def test_a_writer_needs_to_know_where_to() -> None:
    with pytest.raises(ConfigError, match="name the destination"):
        make_writer("tensorboard")


def test_a_missing_package_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(target: str) -> Any:
        raise ModuleNotFoundError("no", name="mlflow")

    monkeypatch.setitem(registry.WRITERS, "mlflow", missing)
    with pytest.raises(ConfigError, match=r"needs mlflow.*pip install 'edge-federation\[mlflow\]'"):
        make_writer("mlflow=sqlite:///x")


def test_all_that_are_named_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: dict[str, Kept] = {}

    def make(target: str) -> Kept:
        made[target] = Kept()
        return made[target]

    monkeypatch.setattr(registry, "WRITERS", {"tensorboard": make})
    words = argparse.Namespace(write=["tensorboard=a", "tensorboard=b"])
    with _trackers(words, tmp_path) as watcher:
        watcher.show(moments(2)[0])
    assert {target: kept.rounds for target, kept in made.items()} == {"a": [1, 2], "b": [1, 2]}
