"""Every table, row and file of a run's folder is damaged, one at a time: a line says so, or all goes on."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from edge_server.cli.main import main
from edge_server.config.load import load_config
from edge_server.observability.dashboard.feed import Feed
from edge_server.observability.dashboard.run_reader import read_facts
from edge_server.rounds.events import CheckUpdate
from schemas.errors import EdgeError
from schemas.messages import Task
from tests.chaos.desk import Desk, make_devices
from tests.chaos.test_every_write import Killed

EVERY = int(os.environ.get("CHAOS_EVERY_WRITE", "6"))
"""Every n-th damage is tried; 1 is for `make chaos`."""
CONFIG = load_config(
    "fedavg",
    [
        *("federation.name=desk", "data.source=digits", "test-samples=20", "num-clients=2", "quorum=1"),
        *("batch-size=8", "local-epochs=1", "rounds=3", "deliver=false"),
    ],
)
Damage = Callable[[Path], None]


class CutOff(Desk):
    """A server that dies in round three, once the first update of it is in the journal."""

    def _check(self, command: CheckUpdate, task: Task) -> None:
        super()._check(command, task)
        if task.round == 3:
            raise Killed


@pytest.fixture(scope="module")
def devices(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return make_devices(tmp_path_factory.mktemp("devices"))


@pytest.fixture(scope="module")
def folders(devices: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run that is over, and one that was cut off."""
    over, cut_off = tmp_path_factory.mktemp("over") / "run", tmp_path_factory.mktemp("cut-off") / "run"
    Desk(over, CONFIG, devices).live()
    desk = CutOff(cut_off, CONFIG, devices)
    with pytest.raises(Killed):
        desk.live()
    desk.coordinator.suspend()
    return {"over": over, "cut off": cut_off}


def changed(asked: str, *values: Any) -> Damage:
    def damage(folder: Path) -> None:
        # A number that is the key can be nothing else.
        with (
            closing(sqlite3.connect(folder / "journal.sqlite")) as journal,
            suppress(sqlite3.IntegrityError),
            journal,
        ):
            journal.execute(asked, values)

    return damage


def journal_damages(folder: Path) -> dict[str, Damage]:
    """Every table gone and empty, and in its last row every value another, by name."""
    found: dict[str, Damage] = {}
    with closing(sqlite3.connect(folder / "journal.sqlite")) as journal:
        tables = [name for (name,) in journal.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            found[f"{table} gone"] = changed(f"DROP TABLE {table}")
            found[f"{table} empty"] = changed(f"DELETE FROM {table}")
            for _, column, *_ in journal.execute(f"PRAGMA table_info({table})").fetchall():
                last = f"WHERE rowid = (SELECT max(rowid) FROM {table})"
                for value in ("{not json", "{}"):
                    asked = f"UPDATE OR REPLACE {table} SET {column} = ? {last}"
                    found[f"{table}.{column} = {value}"] = changed(asked, value)
    return found


def file_damages(folder: Path) -> dict[str, Damage]:
    """Every file gone, empty, cut in half and with other bytes in its middle."""
    found: dict[str, Damage] = {}
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or path.name == "lock":
            continue
        name = path.relative_to(folder)
        data = path.read_bytes()
        half = len(data) // 2
        found[f"{name} gone"] = lambda run, name=name: (run / name).unlink()
        for how, now in (
            ("empty", b""),
            ("cut", data[:half]),
            (
                "flipped",
                data[:half] + bytes(255 - byte for byte in data[half : half + 200]) + data[half + 200 :],
            ),
        ):
            found[f"{name} {how}"] = lambda run, name=name, now=now: (run / name).write_bytes(now) and None
    return found


def damages(folder: Path) -> dict[str, Damage]:
    every = {**journal_damages(folder), **file_damages(folder)}
    return {name: every[name] for name in list(every)[::EVERY]}


def look(folder: Path) -> None:
    """All that reads a run's folder: nothing is raised but what is told in a line."""
    for verb in ("report", "replay", "devices"):
        assert main([verb, str(folder)]) in (0, 1, 2)
    assert main(["devices", str(folder), "--why", "weak"]) in (0, 1, 2)
    with suppress(EdgeError):
        read_facts(folder)
    Feed(folder, live=False)._look(0.0)


def tried(of: Path, tmp_path: Path, use: Callable[[Path], Any]) -> tuple[list[Any], list[str]]:
    """What came of each damage, and what was raised that no command tells in a line."""
    came, problems = [], []
    for number, (name, damage) in enumerate(damages(of).items()):
        folder = tmp_path / str(number) / "run"
        shutil.copytree(of, folder)
        damage(folder)
        try:
            came.append(use(folder))
        except EdgeError as error:
            came.append(str(error))
        except BaseException as error:
            problems.append(f"{name}: {type(error).__name__}: {error}")
    return came, problems


@pytest.mark.parametrize("state", ["over", "cut off"])
def test_whoever_reads_a_damaged_folder_gets_an_answer_or_a_line(
    tmp_path: Path, folders: dict[str, Path], state: str
) -> None:
    _, problems = tried(folders[state], tmp_path, look)
    assert not problems, "\n".join(problems)


def test_a_server_that_finds_its_folder_damaged_goes_on_or_says_why_not_in_a_line(
    tmp_path: Path, folders: dict[str, Path], devices: Any
) -> None:
    def goes_on(folder: Path) -> str:
        desk = Desk(folder, CONFIG, devices)
        try:
            return desk.live()
        finally:
            desk.coordinator.suspend()

    came, problems = tried(folders["cut off"], tmp_path, goes_on)
    assert not problems, "\n".join(problems)
    assert came.count("finished") > len(came) / 2
