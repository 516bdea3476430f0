"""Each table, row and file of a run folder is damaged, one at a time: commands print one line or work."""

import asyncio
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
from tests.chaos.single_process import SingleProcessServer, make_devices
from tests.chaos.test_every_write import Killed
from tests.slow import mark_slow, slow

EVERY = int(os.environ.get("CHAOS_EVERY_WRITE", "6"))
"""Every n-th damage is tried; `make chaos` sets 1."""
CONFIG = load_config(
    "fedavg",
    [
        *("federation.name=single", "data.source=digits", "test-samples=20", "num-clients=2", "quorum=1"),
        *("batch-size=8", "local-epochs=1", "rounds=3", "deliver=none", "model.name=mlp"),
    ],
)
Damage = Callable[[Path], None]


class CrashingServer(SingleProcessServer):
    """A server that crashes in round three, after the first update is in the journal."""

    def _check(self, command: CheckUpdate, task: Task) -> None:
        super()._check(command, task)
        if task.round == 3:
            raise Killed


@pytest.fixture(scope="module")
def devices(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return make_devices(tmp_path_factory.mktemp("devices"))


@pytest.fixture(scope="module")
def folders(devices: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A finished run and an interrupted one."""
    finished = tmp_path_factory.mktemp("finished") / "run"
    interrupted = tmp_path_factory.mktemp("interrupted") / "run"
    SingleProcessServer(finished, CONFIG, devices).run()
    server = CrashingServer(interrupted, CONFIG, devices)
    with pytest.raises(Killed):
        server.run()
    server.coordinator.storage.close()
    return {"finished": finished, "interrupted": interrupted}


def executed(statement: str, *values: Any) -> Damage:
    def damage(folder: Path) -> None:
        # A numeric key rejects text.
        with (
            closing(sqlite3.connect(folder / "journal.sqlite")) as journal,
            suppress(sqlite3.IntegrityError),
            journal,
        ):
            journal.execute(statement, values)

    return damage


def journal_damages(folder: Path) -> dict[str, Damage]:
    """Each table missing and empty, and each value of its last row changed, by name."""
    found: dict[str, Damage] = {}
    with closing(sqlite3.connect(folder / "journal.sqlite")) as journal:
        tables = [name for (name,) in journal.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            found[f"{table} gone"] = executed(f"DROP TABLE {table}")
            found[f"{table} empty"] = executed(f"DELETE FROM {table}")
            for _, column, *_ in journal.execute(f"PRAGMA table_info({table})").fetchall():
                last = f"WHERE rowid = (SELECT max(rowid) FROM {table})"
                for value in ("{not json", "{}"):
                    statement = f"UPDATE OR REPLACE {table} SET {column} = ? {last}"
                    found[f"{table}.{column} = {value}"] = executed(statement, value)
    return found


def file_damages(folder: Path) -> dict[str, Damage]:
    """Each file missing, empty, cut in half, and with flipped bytes in its middle."""
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


def read_folder(folder: Path) -> None:
    """Every reader of a run folder; only errors with a one-line message are raised."""
    for verb in ("report", "replay", "devices"):
        assert main([verb, str(folder)]) in (0, 1, 2)
    assert main(["devices", str(folder), "--why", "weak"]) in (0, 1, 2)
    with suppress(EdgeError):
        read_facts(folder)
    asyncio.run(Feed(folder, live=False).read_state())


def try_all(of: Path, tmp_path: Path, use: Callable[[Path], Any]) -> tuple[list[Any], list[str]]:
    """The result of `use` for each damage, and the exceptions that have no one-line message."""
    results, problems = [], []
    for number, (name, damage) in enumerate(damages(of).items()):
        folder = tmp_path / str(number) / "run"
        shutil.copytree(of, folder)
        damage(folder)
        try:
            results.append(use(folder))
        except EdgeError as error:
            results.append(str(error))
        except BaseException as error:
            problems.append(f"{name}: {type(error).__name__}: {error}")
    return results, problems


@mark_slow
@pytest.mark.parametrize("state", ["finished", slow("interrupted")])
def test_readers_of_a_damaged_folder_print_a_result_or_one_line(
    tmp_path: Path, folders: dict[str, Path], state: str
) -> None:
    _, problems = try_all(folders[state], tmp_path, read_folder)
    assert not problems, "\n".join(problems)


def test_a_server_with_a_damaged_folder_continues_or_prints_the_reason_in_one_line(
    tmp_path: Path, folders: dict[str, Path], devices: Any
) -> None:
    def resume(folder: Path) -> str:
        server = SingleProcessServer(folder, CONFIG, devices)
        try:
            return server.run()
        finally:
            server.coordinator.storage.close()

    results, problems = try_all(folders["interrupted"], tmp_path, resume)
    assert not problems, "\n".join(problems)
    assert results.count("finished") > len(results) / 2
