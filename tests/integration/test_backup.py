"""A run restored from a backup continues to the same model."""

import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from edge_client.transport.broker_link import parse_address
from edge_server.coordinator.replay import ReplayVerdict, replay
from edge_server.coordinator.standby.writing_right import Suspended
from edge_server.fleet.backup.archive import Chain
from edge_server.fleet.backup.making import make_backup
from edge_server.fleet.backup.restoring import restore_backup
from edge_server.fleet.backup.sealing import Sealer
from edge_server.fleet.backup.sources import sources_of
from edge_server.storage.journal_reader import JournalReader
from edge_server.storage.records import Summary
from edge_server.transport.broker.launch import running_broker
from tests.integration.conftest import demo_config
from tests.integration.device_threads import devices
from tests.integration.test_resume import ServerRun
from tests.slow import mark_slow, slow


def last_state(run: Path) -> bytes:
    """The bytes of the newest global model."""
    return max((run / "models").iterdir()).joinpath("state.safetensors").read_bytes()


@mark_slow
@pytest.mark.parametrize("restored", [slow("runs/original"), "elsewhere/copy"])
def test_a_suspended_run_continues_from_a_copy_of_its_folder(tmp_path: Path, restored: str) -> None:
    settings = {"clients.num-clients": 1, "deliver": "none", "rounds": 3, "rejoin-s": 3000.0}
    config = demo_config(**settings, **{"deadline-s": 3000.0})
    whole, folder = tmp_path / "whole", tmp_path / "runs" / "original"
    with running_broker("embedded", tmp_path / "broker") as broker:
        address = parse_address(broker.url)
        with devices(config, address, tmp_path / "device-1"):
            assert isinstance(ServerRun(config, address, whole).end(), Summary)
        with devices(config, address, tmp_path / "device-2"):
            run = ServerRun(config, address, folder, planning_2=lambda run: run.server.suspend())
            assert isinstance(run.end(), Suspended)
        backup = tmp_path / restored
        if backup != folder:
            shutil.copytree(folder, backup)
            shutil.rmtree(folder)
        with devices(config, address, tmp_path / "device-2"):
            summary = ServerRun(config, address, backup).end()
    assert (summary.outcome, summary.rounds) == ("finished", 3)
    assert last_state(backup) == last_state(whole)
    assert {round_.verdict for round_ in replay(backup)} == {ReplayVerdict.AGREES}


def once_accepted(run: ServerRun, call: Callable[[], object]) -> None:
    """Call once when the next update is in the journal, before its device hears that it is accepted.

    Of updates that are written together, only the first is in the journal then.
    """
    journal = run.coordinator.storage.journal
    write = journal.write_examined_rows

    def written(rows: Any) -> None:
        first, *others = rows
        write([first])
        journal.write_examined_rows = write  # type: ignore[method-assign]
        call()
        write(others)

    journal.write_examined_rows = written  # type: ignore[method-assign]


def at_planning(run: ServerRun, number: int, call: Callable[[], object]) -> None:
    """Call when the server plans this round."""
    plan = run.coordinator.planner.plan

    def planned(command: Any, **options: Any) -> Any:
        if command.round == number:
            call()
        return plan(command, **options)

    run.coordinator.planner.plan = planned  # type: ignore[method-assign]


def test_a_run_that_went_on_after_its_backup_is_restored_to_the_open_round_and_the_same_bits(
    tmp_path: Path,
) -> None:
    """The first server goes on into round 3, so the devices know later tasks than the restored journal."""
    settings = {"clients.num-clients": 2, "deliver": "none", "rounds": 3, "rejoin-s": 3000.0}
    config = demo_config(**settings, **{"deadline-s": 3000.0})
    whole, folder, backup = tmp_path / "whole", tmp_path / "runs" / "home", tmp_path / "home.backup"
    sealer = Sealer.new("correct horse", cost=2**10)

    def save() -> None:
        (folder / "signing.key").write_text("secret")
        make_backup(backup, sources_of(None, (), (folder,)), sealer=sealer)

    def in_round_2(run: ServerRun) -> None:
        once_accepted(run, save)
        at_planning(run, 3, lambda: once_accepted(run, run.server.suspend))

    with running_broker("embedded", tmp_path / "broker") as broker:
        address = parse_address(broker.url)
        with devices(config, address, tmp_path / "device-1"):
            assert isinstance(ServerRun(config, address, whole).end(), Summary)
        with devices(config, address, tmp_path / "device-2"):
            assert isinstance(ServerRun(config, address, folder, planning_2=in_round_2).end(), Suspended)
            before = (folder / "journal.sqlite").read_bytes()
            with closing(Chain.open(backup)) as chain:
                (restored,) = restore_backup(chain, tmp_path / "new", sealer=sealer)
            with closing(JournalReader(restored / "journal.sqlite")) as reader:
                assert [closed.round for closed in reader.rounds()] == [1]
                assert len(reader.updates(since=2)) == 1
                first, number = min(reader.epochs()), reader.restored_attempt()
            summary = ServerRun(config, address, restored).end()
    assert (summary.outcome, summary.rounds) == ("finished", 3)
    assert last_state(restored) == last_state(whole)
    assert {round_.verdict for round_ in replay(restored)} == {ReplayVerdict.AGREES}
    with closing(JournalReader(restored / "journal.sqlite")) as reader:
        assert all(planning.attempt > number for planning in reader.plannings() if planning.round == 3)
        assert max(reader.epochs()) > first
    assert (folder / "journal.sqlite").read_bytes() == before
    assert not list(folder.glob(".backup-*"))
