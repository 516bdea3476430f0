"""`edge-server devices RUN --why DEVICE`: each plan of a device and its outcome."""

import json
from pathlib import Path

import pytest

from edge_server.cli.main import EDGE_SERVER
from edge_server.config.load import load_config
from edge_server.observability.device_totals import read_selection_history
from edge_server.rounds.events import Assignment
from edge_server.storage.journal import AggregatedUpdate, Journal
from edge_server.storage.run_folder import RunFolder
from edge_server.strategy.explanations import DeviceChoice, RoundChoices
from tests.edge_server.observability.terminal.shown import record as round_record
from tests.schemas.examples import MESSAGES_BY_KIND

DIGEST = "1" * 64
TASK, UPDATE = MESSAGES_BY_KIND["task"], MESSAGES_BY_KIND["update"]


def choice(device: str, *, chosen: bool, because: str) -> DeviceChoice:
    return DeviceChoice(device=device, chosen=chosen, because=because, score=0.5, tier=1)


def plan(journal: Journal, attempt: int, number: int, *chosen: str, silent: bool = False) -> None:
    """Record a plan that chooses among pi and pc."""
    reported = [
        choice(name, chosen=name in chosen, because="drawn" if name in chosen else "not")
        for name in ("pi", "pc")
    ]
    tasks = {name: Assignment(TASK.model_copy(update={"attempt": attempt}), 900) for name in chosen}
    choices = None if silent else RoundChoices(attempt=attempt, round=number, devices=tuple(reported))
    journal.write_planning(attempt, number, tasks, choices=choices)


def close(folder: RunFolder, journal: Journal, number: int, *updates: AggregatedUpdate, **fields) -> None:
    """Close a round and add its line of history."""
    names = tuple(update.device for update in updates)
    weights = dict.fromkeys(names, 1 / len(names))
    usual = {"selected": ("pc", "pi"), "completed": names, "weights": weights}
    record = round_record(number, **(usual | fields))
    line = record.model_dump_json()
    journal.write_closed_round(number, DIGEST, updates=updates, over=("pi", "pc"), record=line, traffic={})
    folder.add_round(record)


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """Five rounds of pi: an abandoned attempt, counted, refused, not chosen, dropped, and under way."""
    folder = RunFolder.create(tmp_path / "run", load_config("fedavg"))
    journal = Journal(folder.journal)
    plan(journal, 1, 1, "pi")
    plan(journal, 2, 1, "pi", "pc")
    close(folder, journal, 1, AggregatedUpdate("pc", 2, DIGEST, 0), AggregatedUpdate("pi", 2, DIGEST, 0))
    plan(journal, 3, 2, "pi", "pc")
    refused = UPDATE.model_copy(update={"device": "pi", "round": 2, "attempt": 3})
    journal.write_examined(refused, reason="not-finite")
    close(folder, journal, 2, AggregatedUpdate("pc", 3, DIGEST, 0))
    plan(journal, 4, 3, "pc")
    close(folder, journal, 3, AggregatedUpdate("pc", 4, DIGEST, 0), selected=("pc",))
    plan(journal, 5, 4, "pi", "pc")
    close(folder, journal, 4, AggregatedUpdate("pc", 5, DIGEST, 0), dropped=("pi",))
    plan(journal, 6, 5, "pi")
    journal.close()
    return folder


def test_each_plan_has_its_outcome(folder):
    rows = read_selection_history(folder.path, "pi")
    assert [(row.attempt, row.round, row.because, row.outcome, row.reason, row.weight) for row in rows] == [
        (1, 1, "drawn", "dropped", None, None),
        (2, 1, "drawn", "counted", None, 0.5),
        (3, 2, "drawn", "refused", "not-finite", None),
        (4, 3, "not", "not chosen", None, None),
        (5, 4, "drawn", "dropped", None, None),
        (6, 5, "drawn", "under way", None, None),
    ]


def test_an_update_of_a_buffered_round_counts_in_a_later_one(tmp_path):
    folder = RunFolder.create(tmp_path / "run", load_config("fedbuff"))
    journal = Journal(folder.journal)
    plan(journal, 1, 1, "pi", "pc")
    close(folder, journal, 1, AggregatedUpdate("pc", 1, DIGEST, 0), selected=("pc",))
    plan(journal, 2, 2, "pc")
    close(folder, journal, 2, AggregatedUpdate("pi", 1, DIGEST, 1), selected=("pi",))
    journal.close()
    (first, second) = read_selection_history(folder.path, "pi")
    assert (first.outcome, first.staleness, first.weight) == ("counted", 1, 1.0)
    assert second.outcome == "not chosen"


def test_without_stored_reasons_the_history_still_lists_the_rounds(tmp_path):
    folder = RunFolder.create(tmp_path / "run", load_config("fedavg"))
    journal = Journal(folder.journal)
    plan(journal, 1, 1, "pi", "pc", silent=True)
    close(folder, journal, 1, AggregatedUpdate("pi", 1, DIGEST, 0))
    journal.close()
    (row,) = read_selection_history(folder.path, "pi")
    assert (row.round, row.attempt, row.because, row.outcome) == (1, None, "", "counted")


def test_the_history_is_printed_as_a_table_or_as_json(folder, capsys):
    assert EDGE_SERVER.run(["devices", str(folder.path), "--why", "pi"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["round", "chosen", "why", "outcome", "weight"]
    assert lines[3].split() == ["2", "yes", "drawn", "refused:", "not-finite", "-"]
    assert EDGE_SERVER.run(["devices", str(folder.path), "--why", "pi", "--format", "json"]) == 0
    reported = json.loads(capsys.readouterr().out)
    assert (reported["device"], len(reported["rounds"])) == ("pi", 6)
    assert reported["rounds"][1]["weight"] == 0.5


def test_a_device_unknown_to_the_run_is_bad_usage(folder, capsys):
    assert EDGE_SERVER.run(["devices", str(folder.path), "--why", "pii"]) == 2
    assert (
        "--why pii: no device of that name was ever in this run (did you mean 'p" in capsys.readouterr().err
    )
