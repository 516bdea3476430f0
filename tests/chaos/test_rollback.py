"""A device poisons the model with numbers that the firewall admits: its round is undone, despite crashes."""

import json
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_server.config.config import Config
from edge_server.config.load import load_config
from edge_server.coordinator.replay import ReplayVerdict, replay
from edge_server.storage.journal_reader import JournalReader
from schemas.messages import Task, Update
from schemas.tensors.files import FileGroups
from tests.chaos.single_process import Device, SingleProcessServer, final_model, make_devices
from tests.chaos.test_every_write import EVERY, Killed, crash_at

WORDS = [
    *("federation.name=single", "data.source=digits", "test-samples=20", "num-clients=2", "rounds=3"),
    *(
        "batch-size=8",
        "local-epochs=1",
        "deliver=none",
        "learning-rate=0.05",
        "federation.evaluate-every=100",
    ),
    *("firewall.norm-bound=false", "firewall.leave-one-out=0", "strategy.uplink=[]"),
]
CONFIG = load_config("fedavg", WORDS)
ADMITTED = 999_000.0
"""Just below the firewall's absolute limit."""


class PoisoningDevice(Device):
    """A device whose update of round one makes the model impossible to train."""

    def answer(self, task: Task, server: Any) -> Update:
        """The update; in round one every number is as large as the firewall admits."""
        update = super().answer(task, server)
        if task.round != 1:
            return update
        groups = FileGroups(self.store.blob_path(update.blob.digest))
        poisoned = {
            group: {name: np.full_like(arrays[name], ADMITTED) for name in arrays}
            for group, arrays in groups.items()
        }
        blob = self.store.put_groups(poisoned)
        return update.model_copy(update={"blob": blob})


@pytest.fixture(scope="module")
def devices(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Device]:
    made = make_devices(tmp_path_factory.mktemp("devices"))
    weak = made["weak"]
    return {**made, "weak": PoisoningDevice(weak.name, weak.store, weak.place)}


def outcome(folder: Path, config: Config, devices: Any, monkeypatch: Any, at: int | None) -> int:
    """A whole run with a crash at write `at`, if any; returns the number of writes before it."""
    with crash_at(monkeypatch, at) as writes, suppress(Killed):
        SingleProcessServer(folder, config, devices).run()
    if not (folder / "summary.json").exists():
        assert SingleProcessServer(folder, config, devices).run() == "finished"
    return len(writes)


def models(folder: Path) -> list[str]:
    """Check that round one was undone and that replay agrees; returns the digests of the models."""
    with closing(JournalReader(folder / "journal.sqlite")) as reader:
        rounds, (undone,) = reader.rounds(), reader.undone()
    assert (undone.round, undone.left_out) == (1, ("weak",))
    assert [closed.round for closed in rounds] == [1, 2, 3]
    assert [[update.device for update in closed.updates] for closed in rounds[1:]] == [["strong"], ["strong"]]
    history = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    assert [line["back_to"] for line in history] == [None, 0, None]
    assert history[1]["left_out"] == ["weak"]
    assert {result.verdict for result in replay(folder)} == {ReplayVerdict.AGREES}
    assert final_model(folder, 3) == rounds[-1].state_sha256
    return [undone.state_sha256, *(closed.state_sha256 for closed in rounds)]


def test_the_round_is_undone_without_the_poisoning_device_wherever_the_server_crashes(
    tmp_path: Path, devices: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes = outcome(tmp_path / "undisturbed", CONFIG, devices, monkeypatch, None)
    undisturbed = models(tmp_path / "undisturbed")
    for at in range(0, writes, 3 * EVERY - 2):
        outcome(tmp_path / f"crash-at-{at}", CONFIG, devices, monkeypatch, at)
        assert models(tmp_path / f"crash-at-{at}") == undisturbed, f"crash at write {at}"


def test_a_server_killed_between_the_undo_and_the_next_round_continues_from_there(
    tmp_path: Path, devices: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome(tmp_path / "undisturbed", CONFIG, devices, monkeypatch, None)
    server = SingleProcessServer(tmp_path / "run", CONFIG, devices)
    roll_back = server.coordinator.rollback.undo

    def undo_and_crash(command: Any) -> Any:
        roll_back(command)
        raise Killed

    monkeypatch.setattr(server.coordinator.rollback, "undo", undo_and_crash)
    with pytest.raises(Killed):
        server.run()
    again = SingleProcessServer(tmp_path / "run", CONFIG, devices)
    assert again.federation.undone[0].left_out == ("weak",)
    assert again.run() == "finished"
    assert models(tmp_path / "run") == models(tmp_path / "undisturbed")


def test_without_roll_back_the_run_fails(tmp_path: Path, devices: Any) -> None:
    config = load_config("fedavg", [*WORDS, "federation.roll-back=false"])
    assert SingleProcessServer(tmp_path / "run", config, devices).run() == "failed"
