"""The page of a device in the night: alerts, curves, rollouts with figures, and its answers."""

from concurrent.futures import Future
from contextlib import closing
from pathlib import Path
from typing import Any

from edge_server.fleet.alerts.store import AlertStore
from edge_server.fleet.diagnostics.inquiry import Inquired, Status, Terms
from edge_server.releases.registry.registry import Registry
from edge_server.storage import audit_log
from edge_server.storage.inventory.inventory import SAMPLE_S, SAMPLED_S, Inventory
from schemas.errors import EdgeError
from schemas.messages import ModelReport, Telemetry
from schemas.messages.rollout import ModelMeasurement
from schemas.messages.rollout import Stage as Stages
from schemas.values import BoardState
from tests.edge_server.fleet.page.service_pages import staged
from tests.edge_server.fleet.page.test_page_work import MADE, SILENT
from tests.edge_server.fleet.people.people import NOW, fast_passwords

PI = {"federation": "home", "device": "pi-1"}


def state(celsius: float, disk: int) -> Telemetry:
    board = BoardState(celsius=celsius, disk_free_bytes=disk)
    return Telemetry(federation="home", device="pi-1", session=1, phase="idle", board=board)


def test_a_day_of_temperature_and_disk_is_kept(tmp_path: Path) -> None:
    with fast_passwords(), staged(tmp_path) as stage:
        inventory = Inventory(stage.folder.inventory)
        for seconds in (0, 20, SAMPLE_S, SAMPLE_S + 20, SAMPLED_S + SAMPLE_S / 2):
            assert inventory.record_telemetry(state(40 + seconds / 1e4, int(seconds)), NOW + seconds)
        # A clock that was set back leaves nothing of the future.
        assert inventory.board_states("home", "pi-1")[0][0] == NOW + SAMPLE_S
        inventory.record_telemetry(state(50, 9), NOW + SAMPLE_S + 5)
        inventory.close()
        curves = stage.visitor("vera").get("/api/device/home/pi-1").json()["curves"]
    assert curves == {
        "at": [NOW + SAMPLE_S, NOW + SAMPLE_S + 5],
        "celsius": [40.06, 50],
        "disk_free_bytes": [SAMPLE_S, 9],
    }


def test_the_page_has_the_alerts_of_the_device_and_its_rollouts_with_figures(tmp_path: Path) -> None:
    report = ModelReport(
        federation="home",
        device="pi-1",
        rollout="r-1",
        version="home-1",
        stage=Stages.REFUSED,
        detail="accuracy fell",
        running=ModelMeasurement(examples=200, accuracy=0.91, metrics={"accuracy": 0.91}, latency_ms=12.0),
        candidate=ModelMeasurement(examples=200, accuracy=0.78, metrics={"accuracy": 0.78}, latency_ms=14.25),
    )
    with fast_passwords(), staged(tmp_path) as stage:
        other = SILENT.model_copy(update={"subject": SILENT.subject.model_copy(update={"name": "pi-2"})})
        with closing(AlertStore(stage.folder.alerts)) as store:
            store.save({}, {SILENT.key: SILENT, other.key: other}, (), now=NOW)
        registry = Registry(stage.folder.registry)
        registry.enter(MADE, lambda path: None)
        with registry.database() as database:
            begun = ("r-1", "home-1", "home", "{}", "running", 0, "", NOW)
            database.execute("INSERT INTO rollouts VALUES (?, ?, ?, ?, ?, ?, ?, ?, NULL)", begun)
            for device in ("pi-1", "pi-2"):
                target = ("r-1", device, 1, 0, "failed", report.model_dump_json(), NOW)
                database.execute("INSERT INTO targets VALUES (?, ?, ?, ?, ?, ?, ?)", target)
        found = stage.visitor("vera").get("/api/device/home/pi-1").json()
    assert [(alert["rule"], alert["state"]) for alert in found["alerts"]] == [("silent-for", "firing")]
    (rollout,) = found["rollouts"]
    assert (rollout["version"], rollout["status"], rollout["why"]) == ("home-1", "failed", "accuracy fell")
    assert rollout["before"] == "91.00% of 200 examples, 12 ms"
    assert rollout["after"] == "78.00% of 200 examples, 14.2 ms"


def test_an_operator_asks_a_device_for_its_doctor_and_its_log_and_sees_the_answer(tmp_path: Path) -> None:
    asked: list[tuple[str, str, str, str]] = []
    answers: list[Future[Inquired]] = []

    def request(federation: str, device: str, terms: Terms, *, who: str) -> "Future[Inquired]":
        asked.append((federation, device, str(terms.what), who))
        answers.append(Future())
        return answers[-1]

    with fast_passwords(), staged(tmp_path, request=request) as stage:
        operator = stage.visitor("otto")

        def shown() -> Any:
            return operator.get("/api/device/home/pi-1").json()["answers"]

        assert operator.act("devices.doctor", **PI).status_code == 200
        assert operator.act("devices.logs", **PI).status_code == 200
        assert asked == [("home", "pi-1", "doctor", "user:otto"), ("home", "pi-1", "logs", "user:otto")]
        assert shown()["doctor"] == {"asked_by": "user:otto", "asked_at": NOW, "status": "waiting"}
        twice = operator.act("devices.doctor", **PI)
        assert (twice.status_code, "is being asked already" in twice.json()["error"]) == (400, True)
        finding = {"level": "failure", "check": "clock", "detail": "is\x1b 3 h late", "remedy": "timedatectl"}
        answers[0].set_result(Inquired("pi-1", Status.ANSWERED, {"doctor": [finding, "no finding"]}))
        line = {"time": "2026-11-28T10:00:00+00:00", "level": "warning", "message": "a\nb", "reason": "late"}
        answers[1].set_result(Inquired("pi-1", Status.ANSWERED, {"logs": [line, 7]}))
        assert shown()["doctor"]["findings"] == [{**finding, "detail": "is\\x1b 3 h late"}]
        assert shown()["logs"]["lines"] == ["2026-11-28T10:00:00 WARNING a\\nb [reason=late]"]
        # Who may not ask does not see the answers, and nobody asks twice what the action records itself.
        assert stage.visitor("vera").get("/api/device/home/pi-1").json()["answers"] == {}
        assert stage.visitor("vera").act("devices.logs", **PI).status_code == 403
        assert not list(audit_log.read_entries(stage.folder.audit))
        assert operator.act("devices.logs", **PI).status_code == 200
        answers[2].set_result(Inquired("pi-1", Status.DISABLED, None, "switched off by its owner"))
        assert (shown()["logs"]["status"], shown()["logs"]["why"]) == (
            "disabled",
            "switched off by its owner",
        )


def test_too_many_requests_are_refused_in_one_line(tmp_path: Path) -> None:
    def request(federation: str, device: str, terms: Terms, *, who: str) -> "Future[Inquired]":
        raise EdgeError("32 requests for diagnostics are open: wait until some are answered")

    with fast_passwords(), staged(tmp_path, request=request) as stage:
        refused = stage.visitor("otto").act("devices.doctor", **PI)
        assert (refused.status_code, "wait until some are answered" in refused.json()["error"]) == (503, True)
