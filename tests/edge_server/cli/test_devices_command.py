"""`edge-server devices` on a run folder with or without a summary."""

import json
from contextlib import closing
from pathlib import Path

import pytest

from edge_server.cli.main import EDGE_SERVER
from edge_server.config.load import load_config
from edge_server.observability.counters import RunCounters
from edge_server.rounds.fleet import Device
from edge_server.storage.inventory.inventory import Inventory
from edge_server.storage.journal import Journal
from edge_server.storage.journal_reader import ExaminedUpdate, JournalReader, Strike
from edge_server.storage.records import DeviceRecord
from edge_server.storage.run_folder import RunFolder
from schemas.errors import ConfigError
from schemas.messages import Birth, Update
from schemas.values import CapabilityProfile, DataCard, SkippedFiles
from tests.edge_server.observability.terminal import shown
from tests.schemas.examples import MESSAGES_BY_KIND

EXAMPLE = MESSAGES_BY_KIND["update"]
DIGESTS = [str(number) * 64 for number in range(10)]


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """Two rounds of `good` and `bad`; `bad` was refused twice and so is quarantined for five rounds."""
    words = ["firewall.quarantine-after=2", "firewall.quarantine-rounds=5"]
    folder = RunFolder.create(tmp_path / "run", load_config("fedavg", words))
    journal = Journal(folder.journal)
    for number in (1, 2):
        journal.write_examined(update("good", number, DIGESTS[number]), reason=None, norms={"model": 0.5})
        journal.write_examined(update("bad", number, DIGESTS[number + 2]), reason="not-finite")
        journal.struck("bad", number, "not-finite")
        folder.add_round(shown.record(number, selected=("bad", "good"), completed=("good",)))
    journal.close()
    return folder


def update(device: str, number: int, digest: str) -> Update:
    blob = EXAMPLE.blob.model_copy(update={"digest": digest})
    return EXAMPLE.model_copy(update={"device": device, "round": number, "attempt": number, "blob": blob})


def reported(folder: RunFolder, capsys: pytest.CaptureFixture[str]) -> list[dict]:
    assert EDGE_SERVER.run(["devices", str(folder.path), "--format", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_rounds_refusals_and_quarantine_are_reported_during_the_run(folder, capsys):
    nothing = {"downlink_bytes": 0, "uplink_bytes": 0}
    assert reported(folder, capsys) == [
        {"device": "bad", "rounds": 0, **nothing, "refused": {"not-finite": 2}, "quarantined_until": 7},
        {"device": "good", "rounds": 2, **nothing, "refused": {}, "quarantined_until": None},
    ]


def test_traffic_is_reported_per_device_including_broadcasts(folder, capsys):
    tally = RunCounters()
    tally.count_sent("good", 30)
    tally.count_published(["good", "bad"], 1, 1000)
    tally.count_received("good", 200)
    journal = Journal(folder.journal)
    journal.write_closed_round(2, "a" * 64, updates=[], over=[], record="{}", traffic=tally.traffic())
    journal.close()
    shown = [(row["device"], row["downlink_bytes"], row["uplink_bytes"]) for row in reported(folder, capsys)]
    assert shown == [("bad", 1000, 0), ("good", 1030, 200)]


def test_after_the_run_the_refusals_of_the_summary_are_reported(folder, capsys):
    device = DeviceRecord(device="bad", tier=1, ratio=0, refusals=9, refused={"malformed": 9})
    folder.write_summary(shown.summary(devices=(device,)))
    assert [row["refused"] for row in reported(folder, capsys)] == [{"malformed": 9}, {}]


def test_without_an_inventory_the_labels_of_the_run_choose_devices(folder, capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("EDGE_SERVICE", str(tmp_path / "none"))
    device = DeviceRecord(device="bad", tier=1, ratio=0, labels={"site": "barn"})
    folder.write_summary(shown.summary(devices=(device,)))
    assert EDGE_SERVER.run(["devices", str(folder.path), "--where", "site=barn"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["device", "bad"]
    assert [row.get("labels") for row in reported(folder, capsys)] == [{"site": "barn"}, None]


def test_the_default_output_is_a_table(folder, capsys):
    assert EDGE_SERVER.run(["devices", str(folder.path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["device", "rounds", "down", "up", "refused", "quarantine"]
    assert "not-finite 2" in lines[1]
    assert "until round 7" in lines[1]


def test_an_invalid_run_folder_is_a_usage_error(tmp_path, capsys):
    assert EDGE_SERVER.run(["devices", str(tmp_path)]) == 2
    assert "history.jsonl: missing" in capsys.readouterr().err


def test_the_journal_is_read_as_it_was_written(folder):
    with closing(JournalReader(folder.journal)) as reader:
        assert reader.strikes() == [Strike("bad", 1, "not-finite"), Strike("bad", 2, "not-finite")]
        assert reader.examined_updates()[:2] == [
            ExaminedUpdate(1, "good", DIGESTS[1], None, {"model": 0.5}),
            ExaminedUpdate(1, "bad", DIGESTS[3], "not-finite", {}),
        ]


def test_an_invalid_journal_is_a_config_error(tmp_path):
    (tmp_path / "no.sqlite").write_bytes(b"not a database, and long enough to be recognised as none")
    with pytest.raises(ConfigError, match="no journal that can be read"):
        JournalReader(tmp_path / "no.sqlite")


def test_a_board_has_the_history_of_the_one_whose_place_it_took(folder, capsys, tmp_path, monkeypatch):
    service = tmp_path / "service"
    monkeypatch.setenv("EDGE_SERVICE", str(service))
    inventory = Inventory(service / "inventory.sqlite")
    name = load_config(str(folder.path / "federation.toml")).federation.name
    inventory.add(name, "bad", own_labels={"site": "barn"})
    inventory.replace(name, "bad", "new", 1.0)
    inventory.replace(name, "new", "good", 2.0)
    inventory.close()
    assert {row["device"]: row.get("replaces") for row in reported(folder, capsys)} == {
        "bad": None,
        "good": ["new", "bad"],
    }
    assert EDGE_SERVER.run(["devices", str(folder.path), "--where", "site=barn"]) == 0
    assert capsys.readouterr().out.splitlines()[0].split()[-1] == "replaces"
    assert EDGE_SERVER.run(["devices", str(folder.path), "--why", "good", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(row["round"], row["device"], row["outcome"]) for row in found["rounds"]] == [
        (1, "good", "counted"),
        (1, "bad", "dropped"),
        (2, "good", "counted"),
        (2, "bad", "dropped"),
    ]


def test_the_devices_of_a_run_name_their_broken_files(
    folder: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    skipped = SkippedFiles(files=2, of=500, first="cannot read image a.jpg: it is not an image")
    card = DataCard(source="folder:a", examples=498, input_shape=(1, 8, 8), num_classes=2, skipped=skipped)
    journal = Journal(folder.journal)
    journal.write_planning(1, 1, {}, devices=[Device("good", 1, CapabilityProfile(), card)])
    journal.close()
    assert EDGE_SERVER.run(["devices", str(folder.path)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == (
        "good: 2 of 500 files are broken and left out; the first: cannot read image a.jpg: it is not an image"
    )
    assert [row.get("skipped", {}).get("files") for row in reported(folder, capsys)] == [None, 2]


def test_the_inventory_names_the_broken_files_of_a_device(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inventory = Inventory(tmp_path / "inventory.sqlite")
    skipped = SkippedFiles(files=2, of=500, first="cannot read image a\n.jpg: it is not an image")
    card = DataCard(source="folder:a", examples=498, input_shape=(1, 8, 8), num_classes=2, skipped=skipped)
    inventory.record_birth(Birth(federation="home", device="pi-1", session=1, data=card), 1.0)
    inventory.close()
    assert EDGE_SERVER.run(["devices", "--service", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == (
        "pi-1: 2 of 500 files are broken and left out; "
        "the first: cannot read image a .jpg: it is not an image"
    )
