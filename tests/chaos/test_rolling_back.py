"""A device poisons the model with numbers that the firewall admits: the run goes back, also across kills."""

from __future__ import annotations

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
from schemas.tensors.blobs import FileGroups
from tests.chaos.desk import Desk, Device, final_model, make_devices
from tests.chaos.test_every_write import EVERY, Killed, deadly

WORDS = [
    *("federation.name=desk", "data.source=digits", "test-samples=20", "num-clients=2", "rounds=3"),
    *(
        "batch-size=8",
        "local-epochs=1",
        "deliver=false",
        "learning-rate=0.05",
        "federation.evaluate-every=100",
    ),
    *("firewall.norm-bound=false", "strategy.uplink=[]"),
]
CONFIG = load_config("fedavg", WORDS)
ADMITTED = 999_000.0
"""Just below what the firewall takes for beyond all sense."""


class Liar(Device):
    """A device that trains like any other, but in round one answers with numbers that nobody can train."""

    def answer(self, task: Task, server: Any) -> Update:
        """The update, of which every number is as large as the firewall admits."""
        update = super().answer(task, server)
        if task.round != 1:
            return update
        groups = FileGroups(self.store.path(update.blob.digest))
        lie = {
            group: {name: np.full_like(arrays[name], ADMITTED) for name in arrays}
            for group, arrays in groups.items()
        }
        blob = self.store.put_groups(lie)
        return update.model_copy(update={"blob": blob})


@pytest.fixture(scope="module")
def devices(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Device]:
    made = make_devices(tmp_path_factory.mktemp("devices"))
    weak = made["weak"]
    return {**made, "weak": Liar(weak.name, weak.store, weak.place)}


def outcome(folder: Path, config: Config, devices: Any, monkeypatch: Any, at: int | None) -> int:
    """A whole run that dies at one write; returns how many writes an undisturbed one has."""
    with deadly(monkeypatch, at) as writes, suppress(Killed):
        Desk(folder, config, devices).live()
    if not (folder / "summary.json").exists():
        assert Desk(folder, config, devices).live() == "finished"
    return len(writes)


def models(folder: Path) -> list[str]:
    """The digests of the rounds' models; each is there, agrees with its replay and tells of what happened."""
    with closing(JournalReader(folder / "journal.sqlite")) as reader:
        rounds, (given_up,) = reader.rounds(), reader.undone()
    assert (given_up.round, given_up.left_out) == (1, ("weak",))
    assert [one.round for one in rounds] == [1, 2, 3]
    assert [[one.device for one in closed.updates] for closed in rounds[1:]] == [["strong"], ["strong"]]
    history = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    assert [line["back_to"] for line in history] == [None, 0, None]
    assert history[1]["left_out"] == ["weak"]
    assert {one.verdict for one in replay(folder)} == {ReplayVerdict.AGREES}
    assert final_model(folder, 3) == rounds[-1].state_sha256
    return [given_up.state_sha256, *(closed.state_sha256 for closed in rounds)]


def test_the_run_goes_back_without_the_liar_wherever_the_server_dies(
    tmp_path: Path, devices: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes = outcome(tmp_path / "undisturbed", CONFIG, devices, monkeypatch, None)
    undisturbed = models(tmp_path / "undisturbed")
    for at in range(0, writes, 3 * EVERY - 2):
        outcome(tmp_path / f"died-at-{at}", CONFIG, devices, monkeypatch, at)
        assert models(tmp_path / f"died-at-{at}") == undisturbed, f"died at write {at}"


def test_a_server_killed_between_the_going_back_and_the_next_round_goes_on_from_there(
    tmp_path: Path, devices: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome(tmp_path / "undisturbed", CONFIG, devices, monkeypatch, None)
    desk = Desk(tmp_path / "run", CONFIG, devices)
    roll_back = desk.coordinator.rollback.undo

    def last_deed(command: Any) -> Any:
        roll_back(command)
        raise Killed

    monkeypatch.setattr(desk.coordinator.rollback, "undo", last_deed)
    with pytest.raises(Killed):
        desk.live()
    again = Desk(tmp_path / "run", CONFIG, devices)
    assert again.federation.undone[0].left_out == ("weak",)
    assert again.live() == "finished"
    assert models(tmp_path / "run") == models(tmp_path / "undisturbed")


def test_without_roll_back_the_run_fails(tmp_path: Path, devices: Any) -> None:
    config = load_config("fedavg", [*WORDS, "federation.roll-back=false"])
    assert Desk(tmp_path / "run", config, devices).live() == "failed"
