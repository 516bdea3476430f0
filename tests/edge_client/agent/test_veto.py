"""What the owner of a device's data forbids: the device declines it, and says so."""

import logging
from pathlib import Path
from typing import Any

import pytest

from edge_client.agent import assembly
from edge_client.agent.agent import Agent
from edge_client.agent.eligibility.rules import Veto, objection
from edge_client.agent.session.machine import SessionPhase
from edge_client.cli.config_file import read_client_file
from edge_client.data.local import LocalData
from edge_client.transport.broker_link import LinkUp
from schemas.errors import ConfigError, Reason
from schemas.messages import Task, TaskReply
from schemas.statistics import StatisticsRequest
from schemas.strategy import Component, TrainingPlan
from tests.edge_client.agent.births import device_settings
from tests.edge_client.agent.session.by_hand import DEVICE, FEDERATION, deliver, task
from tests.edge_client.agent.test_agent_restart import DIGITS, Life, StillLink, StillWorker

INT8 = (Component(name="int8"), Component(name="zstd"))
MEASURE = {"training": TrainingPlan(local_epochs=0), "returned": ()}


def changed(**fields: Any) -> Task:
    return task().model_copy(update=fields)


@pytest.mark.parametrize(
    ("veto", "asked", "why"),
    [
        (Veto(), task(), ""),
        (Veto(tasks=("statistics", "measure")), task(), ""),
        (Veto(tasks=("train",)), task(), "tasks of the kind train"),
        (Veto(tasks=("measure",)), changed(**MEASURE), "tasks of the kind measure"),
        (Veto(tasks=("statistics",)), changed(statistics=StatisticsRequest()), "of the kind statistics"),
        (Veto(tasks=("deliver",)), deliver(), "tasks of the kind deliver"),
        (Veto(codecs=("int8",)), changed(uplink=INT8), "forbids the codec int8"),
        (Veto(codecs=("float32",)), changed(uplink=INT8), ""),
        (Veto(codecs=("float32",)), changed(uplink=()), "forbids the codec float32"),
        (Veto(min_examples=41), task(), "40 examples, the owner of this device asks for at least 41"),
        (Veto(min_examples=40), task(), ""),
        (Veto(min_examples=11), changed(**MEASURE), "10 examples"),
        (Veto(max_rounds=3), changed(round=4), "round 4, the owner of this device allows 3 in a run"),
        (Veto(max_rounds=3), changed(round=3), ""),
        (Veto(max_rounds=3, min_examples=99, codecs=("float32",)), deliver(), ""),
    ],
)
def test_only_what_the_owner_forbids_is_declined(veto: Veto, asked: Task, why: str) -> None:
    found = objection(veto, asked, trained_on=40, held_out=10)
    assert why in found
    assert bool(why) is bool(found)


class Owned(Life):
    """A device whose owner forbids something."""

    def __init__(self, folder: Path, veto: Veto) -> None:
        settings = device_settings(folder / "state", federation=FEDERATION, device=DEVICE, veto=veto)
        settings.state.mkdir()
        self.agent = Agent(settings, LocalData(DIGITS, DIGITS))
        self.hand(LinkUp(self.link.first_session, None))


def test_a_device_declines_rounds_beyond_its_owners_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(assembly, "Link", StillLink)
    monkeypatch.setattr(assembly, "Worker", StillWorker)
    device = Owned(tmp_path, Veto(max_rounds=1))
    device.hear(task())
    assert device.published(TaskReply)[-1].accepted
    with caplog.at_level(logging.WARNING):
        device.hear(task(2))
    reply = device.published(TaskReply)[-1]
    why = "round 2, the owner of this device allows 1 in a run"
    assert (reply.accepted, reply.reason, reply.detail) == (False, Reason.INELIGIBLE, why)
    assert f"declined, by [veto]: {why}" in caplog.text
    # The task at hand goes on.
    assert device.phase is not SessionPhase.IDLE


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("max-round = 3", r"unknown key 'veto.max-round' \(did you mean 'max-rounds'"),
        ("codecs = ['int-8']", r"veto.codecs: .*no codec is called 'int-8' \(did you mean 'int8'"),
        ("tasks = ['test']", r"veto.tasks: .*'train', 'measure', 'statistics' or 'deliver', got 'test'"),
    ],
)
def test_a_veto_that_would_forbid_nothing_is_an_error(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "client.toml").write_text(f"[veto]\n{line}\n")
    with pytest.raises(ConfigError, match=message):
        read_client_file(tmp_path / "client.toml")


def test_a_veto_is_read_from_the_file(tmp_path: Path) -> None:
    (tmp_path / "client.toml").write_text("[veto]\ntasks = ['statistics']\nmin-examples = 50\n")
    found = read_client_file(tmp_path / "client.toml")["veto"]
    assert found == Veto(tasks=("statistics",), min_examples=50)
