"""Content and frequency of a device's reports about its work and its board."""

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from edge_client.agent.announcer import WorkTelemetry
from edge_client.agent.presence import Presence
from edge_client.agent.server_contact import Messenger
from edge_client.agent.session.machine import Session, SessionPhase
from edge_client.agent.settings import AgentSettings
from edge_client.agent.worker import Progress
from edge_client.cli.config_file import read_client_file
from edge_client.data.local import LocalData
from edge_client.data.sources import load_source
from edge_client.transport.broker_link import LinkUp
from schemas.errors import ConfigError
from schemas.messages import Task
from schemas.topics import Channel
from tests.edge_client.agent.births import device_settings
from tests.edge_client.agent.session.by_hand import DEVICE, FEDERATION, deliver, delivery, task, update
from tests.edge_client.system.hardware.trees import PI, tree

IDLE = Session(FEDERATION, DEVICE, connected=True)
FETCHING = replace(IDLE, phase=SessionPhase.FETCHING, task=task())
WORKING = replace(FETCHING, phase=SessionPhase.WORKING)
REPORTING = replace(WORKING, phase=SessionPhase.REPORTING, result=update())


class Reports:
    """Calls the telemetry and returns the report that it has published, if any."""

    def __init__(self, settings: AgentSettings, root: Path) -> None:
        self._published: list[Any] = []
        self._telemetry = WorkTelemetry(
            settings,
            Presence(settings, LocalData(load_source("digits"), load_source("digits"))),
            cast(Messenger, self),
            root=root,
        )
        self._telemetry.on_connected(LinkUp(1, None), 100.0)

    def publish(self, channel: Channel, message: Any, *, qos: int) -> None:
        assert (channel, qos) == (Channel.UP, 0)
        self._published.append(message)

    def turn(self, session: Session, now: float) -> Any:
        return self._reported(self._telemetry.tick(now, session))

    def begun(self, work: Task, now: float) -> Any:
        return self._reported(self._telemetry.begun(work, now))

    def progressed(self, event: Progress, now: float) -> Any:
        return self._reported(self._telemetry.on_progress(event, now))

    def _reported(self, _: None) -> Any:
        published, self._published = self._published, []
        assert len(published) <= 1
        return published[0] if published else None


def telemetry(folder: Path, *, every_s: float = 30.0) -> Reports:
    """The telemetry of a device that connected at 100 seconds."""
    settings = device_settings(folder, federation=FEDERATION, device=DEVICE, telemetry_every_s=every_s)
    return Reports(settings, tree(folder, PI))


def test_an_idle_device_reports_itself_and_its_board_periodically(tmp_path):
    reports = telemetry(tmp_path)
    times = [now for now in range(100, 191) if reports.turn(IDLE, float(now))]
    assert times == [130, 160, 190]
    report = reports.turn(IDLE, 220.0)
    assert report is not None
    assert (report.phase, report.round, report.epoch) == ("idle", None, None)
    assert (report.board.celsius, report.board.battery) == (61.225, 0.42)


def test_an_interval_of_zero_disables_periodic_reports_but_not_work_reports(tmp_path):
    reports = telemetry(tmp_path, every_s=0.0)
    assert [
        reports.turn(session, 1e9 + n) for n, session in enumerate((IDLE, FETCHING, FETCHING, FETCHING))
    ] == [None] * 4
    assert reports.begun(task(), 2e9).board is not None


def test_nothing_is_reported_without_a_connection(tmp_path):
    assert telemetry(tmp_path).turn(replace(IDLE, connected=False), 1e9) is None


def test_a_long_fetch_or_upload_is_reported_once_and_a_short_one_not_at_all(tmp_path):
    reports = telemetry(tmp_path)
    assert reports.turn(FETCHING, 101.0) is None
    assert reports.turn(IDLE, 101.9) is None
    assert reports.turn(FETCHING, 103.0) is None
    report = reports.turn(FETCHING, 104.0)
    assert (report.phase, report.round) == ("fetching", 1)
    assert reports.turn(FETCHING, 105.0) is None
    assert reports.begun(task(), 106.0).phase == "training"
    assert reports.turn(REPORTING, 107.0) is None
    assert reports.turn(REPORTING, 108.0).phase == "uploading"


def test_a_delivered_model_is_not_reported_as_an_upload(tmp_path):
    reports = telemetry(tmp_path)
    delivered = replace(REPORTING, task=deliver(), result=delivery())
    assert [reports.turn(delivered, now) for now in (101.0, 110.0)] == [None, None]
    assert reports.turn(delivered, 130.0).phase == "exporting"


def test_a_long_epoch_is_reported_with_the_loss_of_the_last_one(tmp_path):
    reports = telemetry(tmp_path)
    assert reports.progressed(Progress(task(), 2, 5, 0.25), 110.0).epoch == 2
    assert reports.progressed(Progress(task(), 3, 5, 0.125), 110.5) is None
    report = reports.turn(WORKING, 140.0)
    assert (report.phase, report.epoch, report.epochs, report.loss) == ("training", 3, 5, 0.125)
    # Nothing is known about the next task yet.
    assert reports.turn(replace(WORKING, task=task(2)), 170.0).epoch is None


def test_the_board_is_read_at_most_once_a_second(tmp_path):
    reports = telemetry(tmp_path)
    assert reports.begun(task(), 110.0).board.celsius == 61.225
    tree(tmp_path, {"sys/class/thermal/thermal_zone0/temp": "70000\n"})
    assert reports.begun(task(2), 110.9).board.celsius == 61.225
    assert reports.begun(task(3), 111.0).board.celsius == 70.0


def test_the_interval_is_read_from_the_file_and_may_not_be_negative(tmp_path):
    file = tmp_path / "client.toml"
    file.write_text("telemetry-every-s = 2.5\n")
    assert read_client_file(file) == {"telemetry_every_s": 2.5}
    file.write_text("telemetry-every-s = -1\n")
    with pytest.raises(ConfigError, match="telemetry-every-s"):
        read_client_file(file)
