"""A sensor's messages become examples: recorded, labelled later, trained on as they come."""

import json
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from edge_client.agent.agent import Agent, AgentSettings
from edge_client.agent.local_source import DataChoice, LocalSource
from edge_client.agent.recording.recorder import Recorder
from edge_client.agent.recording.row_maker import Place, Wanted, parse_reading
from edge_client.cli.main import main
from edge_client.data.sources import load_source
from edge_client.data.tables.recorded import ExampleStore, StoreLimits
from edge_server.observability.snapshot import Snapshot
from edge_server.rounds.state import Phase
from schemas.values import CapabilityProfile
from tests.edge_server.observability.integrations.home_assistant.field import Listener
from tests.integration.conftest import DEADLINE_S, ONE_BROKER, demo_config

COLUMNS = ("co2=home/office/air#co2", "light=home/office/air#lamp.lux")
CONFIG = {
    "federation.when": "new-data",
    "federation.new-examples": 50,
    "federation.rounds-per-opening": 2,
    "rounds": 0,
    "num-clients": 1,
    "model.name": "mlp",
    "training.local-epochs": 5,
}


class CountingStore(ExampleStore):
    """A store with which a test waits for a number of rows and labels."""

    changed = threading.Condition()
    rows = labels = 0

    def add(
        self, values: Mapping[str, float], *, at: float, ident: str = "", label: str | None = None
    ) -> str:
        added = super().add(values, at=at, ident=ident, label=label)
        self._count(rows=1, labels=int(label is not None))
        return added

    def label(self, ident: str, label: str) -> bool:
        found = super().label(ident, label)
        self._count(rows=0, labels=1)
        return found

    def _count(self, *, rows: int, labels: int) -> None:
        with self.changed:
            self.rows, self.labels = self.rows + rows, self.labels + labels
            self.changed.notify_all()

    def until(self, rows: int, labels: int) -> None:
        with self.changed:
            seen = self.changed.wait_for(
                lambda: (self.rows, self.labels) == (rows, labels), timeout=DEADLINE_S
            )
        assert seen, (self.rows, self.labels)


class Recording:
    """A recorder in a thread of this process."""

    def __init__(self, address, path: Path) -> None:
        self._ready = threading.Event()
        self._address, self._path = address, path
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)
        self._thread.start()
        assert self._ready.wait(DEADLINE_S)

    def _run(self) -> None:
        readings = tuple(map(parse_reading, COLUMNS))
        wanted = Wanted(readings, ident=Place("home/office/air", ("at",)), label="home/office/state")
        self.store = CountingStore(self._path, ("co2", "light"), StoreLimits())
        self.recorder = Recorder(self._address, wanted, self.store, client_id="recorder")
        self._ready.set()
        self.recorder.run()
        self.store.close()

    def stop(self) -> None:
        self.recorder.stop()
        self._thread.join(DEADLINE_S)


@pytest.fixture
def recording(address, tmp_path: Path) -> Iterator[Recording]:
    made = Recording(address, tmp_path / "room.sqlite")
    yield made
    made.stop()


def sensor(broker) -> Listener:
    return Listener(f"mqtt://127.0.0.1:{broker.port}", "home/none", name="sensor")


def send(office: Listener, numbers: range) -> None:
    """Readings of an office that is busy every other hour, and then the labels that somebody gives them."""
    chance = np.random.default_rng(numbers.start)
    for number in numbers:
        busy = number % 2
        air = {"co2": 500 + 400 * busy + 50 * chance.random(), "lamp": {"lux": 300 * busy}, "at": number}
        office.link.publish("home/office/air", json.dumps(air).encode())
    for number in numbers:
        label = {"id": str(number), "label": ("empty", "busy")[number % 2]}
        office.link.publish("home/office/state", json.dumps(label).encode())


def has_closed(rounds: int):
    def condition(now: Snapshot) -> bool:
        return len(now.history) == rounds and now.phase == Phase.WAITING and bool(now.delivered)

    return condition


@ONE_BROKER
def test_a_sensor_end_to_end(
    broker, address, serve, recording: Recording, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    office = sensor(broker)
    office.link.publish("home/office/air", b'{"co2": 1, "lamp": {"lux": 1}, "at": "first"}', retain=True)
    # The recorder is subscribed to that topic, and to the one of the labels before it.
    recording.store.until(1, 0)
    source = f"recorded:{tmp_path / 'room.sqlite'}?label=label"
    send(office, range(100))
    recording.store.until(101, 100)
    assert len(load_source(source)) == 100
    test = tmp_path / "test.npz"
    np.savez(test, images=np.float32([[520, 0], [930, 300]] * 10), labels=np.array([1, 0] * 10))
    run = serve(demo_config(**CONFIG, **{"data.source": f"npz:{test}"}))
    (tmp_path / "pi").mkdir()
    profile = CapabilityProfile(tier=5, trainers=("torch",))
    settings = AgentSettings(
        "test", "pi", address, tmp_path / "pi", source, profile, threads=1, watch_data_s=0.3
    )
    feed = LocalSource(DataChoice(source), record=tmp_path / "pi" / "examples")
    agent = Agent(settings, feed.read(), feed=feed)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(agent.run)
        try:
            run.watched.until(has_closed(2))
            send(office, range(100, 200))
            run.watched.until(has_closed(4))
        finally:
            agent.stop()
            run.stop()
    assert run.finished().outcome == "interrupted"
    rows = tmp_path / "today.csv"
    rows.write_text("co2,light\n510,0\n920,300\n")
    capsys.readouterr()
    assert main(["infer", str(tmp_path / "pi/models/model.onnx"), f"csv:{rows}", "--format", "json"]) == 0
    answered = json.loads(capsys.readouterr().out)
    assert [result["top"][0]["name"] for result in answered["results"]] == ["empty", "busy"]
    # Rows without labels are answered, and measure nothing.
    assert (answered["labelled"], answered["metrics"]) == (0, {})
