"""`edge-client record` as a process: by the clock, with labels, ended by Ctrl-C; and wrong options."""

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge_client.cli.main import main
from edge_client.data.sources import load_source
from edge_server.transport.broker.launch import RunningBroker, running_broker
from tests.edge_server.observability.integrations.home_assistant.field import Listener
from tests.forked import forked_python


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with running_broker("embedded", tmp_path_factory.mktemp("broker")) as running:
        yield running


class Recorder:
    """The command in a process, with its log."""

    def __init__(self, broker: RunningBroker, store: Path, *words: str) -> None:
        url = f"mqtt://127.0.0.1:{broker.port}"
        command = [*forked_python(), "-u", "-m", "edge_client.cli.main", "record", str(store)]
        self._process = subprocess.Popen(
            [*command, "--broker", url, "--format", "json", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def until(self, text: str) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            if text in line:
                return
        raise AssertionError(f"ended without {text!r}")

    def end(self) -> dict[str, object]:
        """Press Ctrl-C; returns what the command prints."""
        self._process.send_signal(signal.SIGINT)
        printed, log = self._process.communicate(timeout=60)
        assert self._process.returncode == 0, log
        return dict(json.loads(printed))


def test_rows_are_recorded_by_the_clock_until_ctrl_c(broker: RunningBroker, tmp_path: Path) -> None:
    store = tmp_path / "new" / "office.sqlite"
    sensor = Listener(f"mqtt://127.0.0.1:{broker.port}", "home/none", name="sensor")
    sensor.link.publish("home/co2", b"800", retain=True)
    sensor.link.publish("home/state", b"busy", retain=True)
    columns = ("--column", "co2=home/co2", "--column", "lamp=home/lamp")
    recorder = Recorder(broker, store, *columns, "--label", "home/state", "--every", "0.02")
    recorder.until("no rows are recorded: no value of lamp")
    sensor.link.publish("home/lamp", b"dim")
    recorder.until("home/lamp: column 'lamp': 'dim' is not a number")
    sensor.link.publish("home/lamp", b"off")
    recorder.until("rows are recorded: all 2 columns have a value")
    counted = recorder.end()
    data = load_source(f"recorded:{store}?label=label")
    assert (len(data), data.class_names) == (counted["rows"], ("busy",))
    assert set(map(tuple, data.images.tolist())) == {(800.0, 0.0)}
    assert (counted["labelled"], counted["refused"]) == (counted["rows"], {"home/lamp": 1})
    # Started again, the recorder continues the store.
    sensor.link.publish("home/lamp", b"on", retain=True)
    recorder = Recorder(broker, store, *columns, "--every", "0.02")
    recorder.until("rows are recorded")
    again = recorder.end()
    assert again["stored"] == int(str(counted["rows"])) + int(str(again["rows"]))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "nothing to record: state columns"),
        (("--column", "co2"), "expected NAME=TOPIC"),
        (("--column", "a=x", "--column", "a=y"), "two columns are named 'a'"),
        (("--column", "label=x"), "column 'label' is one that every store has"),
        (("--column", "a=x", "--label", "home/#"), "--label: 'home/#' is not a single topic"),
        (("--column", "a=x", "--every", "5", "--id", "y"), "not allowed with argument --every"),
        (("--column", "a=x", "--every", "0"), "--every"),
        (("--column", "a=x", "--broker", "http://x"), "http://x"),
    ],
)
def test_wrong_options_are_refused(
    words: tuple[str, ...], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["record", str(tmp_path / "a.sqlite"), *words]) == 2
    assert message in capsys.readouterr().err


def test_a_store_has_the_columns_that_it_began_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("no database" * 100)
    assert main(["record", str(text), "--column", "a=x"]) == 2
    assert "is not a store of examples" in capsys.readouterr().err
