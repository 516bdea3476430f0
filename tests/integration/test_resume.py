"""A server stops during a run and continues: SIGTERM, a full disk, a second start by mistake."""

from __future__ import annotations

import contextlib
import json
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edge_client.transport.broker_link import BrokerAddress, parse_address
from edge_server.config.config import Config
from edge_server.coordinator.coordinator import assemble
from edge_server.coordinator.replay import ReplayVerdict, replay
from edge_server.coordinator.round_rules import make_rules
from edge_server.coordinator.run_start import lock_folder, open_run, unfinished_run
from edge_server.coordinator.server import Server
from edge_server.coordinator.standby.writing_right import Suspended
from edge_server.storage.service_folder import run_name
from edge_server.transport.broker.launch import running_broker
from schemas.errors import ConfigError
from tests.integration.conftest import DEADLINE_S, Command, Watched, demo_config, read_until
from tests.integration.device_threads import devices
from tests.slow import slow

WORDS = ("data.source=digits", "federation.name=resume", "test-samples=50", "local-epochs=1")


def test_the_same_command_continues_a_run_that_was_terminated(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = demo_config(**{"federation.name": "resume", "clients.num-clients": 2})
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.chdir(tmp_path)
    with running_broker("embedded", tmp_path / "broker") as broker:
        words = ["run", "attending", *WORDS, "num-clients=2", "rejoin-s=60", "--broker", broker.url]
        address = parse_address(broker.url)
        with devices(config, address, tmp_path / "devices"):
            first = command("edge-server", *words, "rounds=60", "deliver=none")
            read_until(first, "round 2 of 60 closed")
            first.send_signal(signal.SIGTERM)
            rest, _ = first.communicate(timeout=DEADLINE_S)
            assert first.returncode == 143, rest
            assert "continues" in rest
            (out,) = (tmp_path / "runs").iterdir()
            assert not (out / "summary.json").exists()
            second = command("edge-server", *words, "rounds=4", "deliver=none")
            rest, _ = second.communicate(timeout=DEADLINE_S)
            assert second.returncode == 0, rest
    assert {path.name for path in (tmp_path / "runs").iterdir()} - {"registry"} == {out.name}
    history = [json.loads(line) for line in (out / "history.jsonl").read_text().splitlines()]
    assert [line["round"] for line in history] == list(range(1, len(history) + 1))
    assert all(len(line["completed"]) == 2 for line in history)
    assert json.loads((out / "summary.json").read_text())["outcome"] == "finished"
    again = list(replay(out))
    assert [result.round for result in again] == [line["round"] for line in history]
    assert {result.verdict for result in again} == {ReplayVerdict.AGREES}


def test_a_run_of_another_configuration_is_not_continued(tmp_path: Path) -> None:
    interrupted_run(tmp_path / "run", demo_config())
    other = demo_config(**{"learning-rate": 0.5})
    with pytest.raises(ConfigError, match=r"training.learning-rate is .*, not 0.5"):
        open_run(tmp_path / "run", other, make_rules(other), now=0.0)


def test_a_run_that_crashed_before_its_first_planning_starts_again(tmp_path: Path) -> None:
    config = demo_config()
    folder, _ = open_run(tmp_path / "run", config, make_rules(config), now=0.0)
    assemble(config, "interrupted", folder).storage.close()
    for journal in (b"", None):
        _, recovered = open_run(tmp_path / "run", config, make_rules(config), now=0.0)
        assert recovered is None
        path = tmp_path / "run" / "journal.sqlite"
        path.unlink()
        if journal is not None:
            path.write_bytes(journal)


def test_the_files_of_an_unsupported_version_are_not_changed(tmp_path: Path) -> None:
    config = demo_config()
    interrupted_run(tmp_path / "run", config)
    (tmp_path / "run" / "history.jsonl").write_text("{}\n")
    (tmp_path / "run" / "journal.sqlite").write_bytes(b"")
    with pytest.raises(ConfigError, match=r"cut off, without its journal\.sqlite-wal"):
        open_run(tmp_path / "run", config, make_rules(config), now=0.0)
    assert (tmp_path / "run" / "history.jsonl").read_text() == "{}\n"


def test_only_an_unfinished_run_of_the_same_configuration_is_found(tmp_path: Path) -> None:
    config = demo_config()
    interrupted_run(tmp_path / "same", config)
    interrupted_run(tmp_path / "other", demo_config(**{"learning-rate": 0.5}))
    interrupted_run(tmp_path / "ended", config)
    (tmp_path / "ended" / "summary.json").write_text("{}")
    (tmp_path / "no-run").mkdir()
    assert unfinished_run(tmp_path, config) == tmp_path / "same"
    assert unfinished_run(tmp_path / "nowhere", config) is None


def test_only_one_server_uses_a_folder_at_a_time(tmp_path: Path) -> None:
    with lock_folder(tmp_path / "run"), pytest.raises(ConfigError, match="another server runs there"):
        lock_folder(tmp_path / "run").__enter__()
    with lock_folder(tmp_path / "run"):
        pass


def interrupted_run(path: Path, config: Config) -> None:
    """A run that was interrupted right after its first planning."""
    folder, _ = open_run(path, config, make_rules(config), now=0.0)
    coordinator = assemble(config, "interrupted", folder)
    coordinator.storage.journal.write_planning(1, 1, {})
    coordinator.storage.close()


class ServerRun:
    """A server from one start to its end, in a thread; `planning_2` is called when round 2 is planned."""

    def __init__(
        self,
        config: Config,
        address: BrokerAddress,
        out: Path,
        *,
        planning_2: Callable[[ServerRun], object] = lambda run: None,
    ) -> None:
        self.watched = Watched()
        folder, recovered = open_run(out, config, make_rules(config), now=time.monotonic())
        run = recovered.federation.run if recovered else run_name("test")
        coordinator = assemble(config, run, folder, resume=recovered.resumption if recovered else None)
        self.coordinator, plan = coordinator, coordinator.planner.plan

        def planned(command: Any, **options: Any) -> Any:
            if command.round == 2 and not command.retry:
                planning_2(self)
            return plan(command, **options)

        coordinator.planner.plan = planned  # type: ignore[method-assign]
        self.server = Server(address, coordinator, self.watched, recovered)
        self.ended: Any = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.ended = self.server.run()
        except BaseException as error:
            self.ended = error

    def end(self) -> Any:
        """Wait for the end; returns the summary or the exception."""
        self._thread.join(timeout=DEADLINE_S)
        assert self.ended is not None, f"not finished; last: {self.watched.last}"
        return self.ended


@pytest.mark.parametrize("where", ["close", slow("write_chunk")])
def test_a_full_disk_suspends_the_run_and_leaves_the_model_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    config = demo_config(**{"clients.num-clients": 1, "deliver": "none", "rejoin-s": 30.0, "rounds": 3})
    with running_broker("embedded", tmp_path / "broker") as broker:
        address = parse_address(broker.url)
        with devices(config, address, tmp_path / "devices"):
            with monkeypatch.context() as broken:

                def disk_fills_up(run: ServerRun) -> None:
                    owner = (
                        run.coordinator.storage.store
                        if where == "write_chunk"
                        else run.coordinator.aggregator
                    )
                    broken.setattr(owner, where, full)

                suspended = ServerRun(config, address, tmp_path / "run", planning_2=disk_fills_up).end()
            assert isinstance(suspended, Suspended)
            assert suspended.failed
            assert "No space left on device" in str(suspended)
            before = {
                path: path.read_bytes() for path in (tmp_path / "run" / "models").rglob("*.safetensors")
            }
            assert before
            assert not (tmp_path / "run" / "summary.json").exists()
            again = ServerRun(config, address, tmp_path / "run")
            summary = again.end()
            assert summary.outcome == "finished"
            assert summary.rounds == 3
    for path, data in before.items():
        with contextlib.suppress(FileNotFoundError):
            assert path.read_bytes() == data
    assert {result.verdict for result in replay(tmp_path / "run")} == {ReplayVerdict.AGREES}
