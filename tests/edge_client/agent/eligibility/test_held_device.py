"""An agent on a simulated board pauses and resumes training, gives back its task and declines the next."""

import logging
from pathlib import Path
from typing import Any

import pytest

from edge_client.agent import assembly
from edge_client.agent.agent import Agent
from edge_client.agent.assembly import EligibilityService
from edge_client.agent.eligibility.rules import Rules
from edge_client.agent.session.machine import SessionPhase
from edge_client.data.local import LocalData
from edge_client.transport.broker_link import LinkUp
from schemas.errors import Reason
from schemas.messages import Birth, TaskReply
from schemas.strategy import TrainingPlan
from schemas.values import Eligibility
from tests.edge_client.agent.births import device_settings
from tests.edge_client.agent.session.by_hand import DEVICE, FEDERATION, task
from tests.edge_client.agent.test_agent_restart import DIGITS, Life, StillLink, StillWorker
from tests.edge_client.system.hardware.trees import PI, tree

TEMPERATURE = "sys/class/thermal/thermal_zone0/temp"
RULES = Rules(max_temperature_c=70, check_every_s=1e-6, give_back_after_s=0.0)


class HeldWorker(StillWorker):
    """Fake worker that records whether training is held."""

    held, given_up = False, ""

    def give_up_training(self, why: str) -> None:
        self.given_up = why

    def hold(self) -> None:
        self.held = True

    def resume(self) -> None:
        self.held = False


class OnBoard(Life):
    """A device on a simulated board whose temperature a test can set."""

    def __init__(self, folder: Path, rules: Rules) -> None:
        self.root = tree(folder / "board", PI)
        named = {"federation": FEDERATION, "device": DEVICE, "eligibility": rules}
        settings = device_settings(folder / "state", **named)
        settings.state.mkdir()
        self.agent = Agent(settings, LocalData(DIGITS, DIGITS), root=self.root)
        self.hand(LinkUp(self.link.first_session, None))

    @property
    def worker(self) -> Any:
        return self.agent.runner.worker

    def warm(self, millidegrees: int) -> None:
        """Set the temperature in thousandths of a degree and let the agent read it."""
        tree(self.root, {TEMPERATURE: f"{millidegrees}\n"})
        self.look()

    def look(self) -> None:
        (rules,) = [service for service in self.agent.services if isinstance(service, EligibilityService)]
        rules.tick(1e9 + len(self.link.published), self.session)

    def work(self) -> None:
        """Give the device a task with all its blobs, so that it starts training."""
        self.hear(task())
        self.receive(0, 1, 2)
        assert self.phase is SessionPhase.WORKING


@pytest.fixture(autouse=True)
def no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assembly, "Link", StillLink)
    monkeypatch.setattr(assembly, "Worker", HeldWorker)


def test_heat_pauses_current_training_and_the_reason_is_reported_to_the_server(tmp_path):
    device = OnBoard(tmp_path, RULES.model_copy(update={"give_back_after_s": 1e9}))
    device.work()
    device.warm(75_000)
    assert device.worker.held
    assert (device.phase, device.published(TaskReply)[-1].accepted) == (SessionPhase.WORKING, True)
    birth = device.published(Birth)[-1]
    assert (birth.eligibility, birth.ineligible_because) == (Eligibility.PAUSE, "75 °C, at most 70 °C")
    device.warm(64_000)
    assert not device.worker.held
    assert device.published(Birth)[-1].eligibility is Eligibility.TRAIN
    assert {birth.session for birth in device.published(Birth)} == {device.published(Birth)[0].session}


def test_a_task_held_for_too_long_is_given_back_and_the_next_task_is_declined(tmp_path):
    device = OnBoard(tmp_path, RULES)
    device.work()
    device.warm(75_000)
    assert (device.phase, device.worker.stopped) == (SessionPhase.IDLE, 1)
    (given_back,) = [reply for reply in device.published(TaskReply) if not reply.accepted]
    assert (given_back.reason, given_back.round) == (Reason.INELIGIBLE, 1)
    device.hear(task(2))
    assert (device.phase, device.published(TaskReply)[-1].reason) == (SessionPhase.IDLE, Reason.INELIGIBLE)
    device.warm(64_000)
    device.hear(task(2))
    assert (device.phase, device.session.task) == (SessionPhase.WORKING, task(2))


def test_a_delivery_that_is_held_for_too_long_goes_on_without_training(tmp_path):
    device = OnBoard(tmp_path, RULES)
    device.warm(75_000)
    device.hear(task(2, action="deliver", personalise=TrainingPlan()))
    device.receive(0, 1, 2)
    assert (device.phase, device.worker.given_up) == (SessionPhase.WORKING, "")
    device.look()
    assert (device.phase, device.worker.given_up) == (SessionPhase.WORKING, "75 °C, at most 70 °C")
    assert all(reply.accepted for reply in device.published(TaskReply))


def test_a_missing_sensor_is_logged_once_and_the_device_keeps_working(tmp_path, caplog):
    device = OnBoard(tmp_path, RULES)
    device.work()
    (device.root / TEMPERATURE).unlink()
    with caplog.at_level(logging.WARNING):
        device.look()
        device.look()
    (line,) = [message for message in caplog.messages if "max-temperature-c" in message]
    assert "does not tell" in line
    assert not device.worker.held
    assert device.phase is SessionPhase.WORKING


def test_a_delivery_task_is_accepted_even_when_training_is_not_allowed(tmp_path):
    device = OnBoard(tmp_path, RULES)
    device.warm(75_000)
    device.hear(task(action="deliver"))
    assert device.phase is SessionPhase.FETCHING
