"""What frozen layers computed once is said device by device, on page, report and terminal."""

import io
from pathlib import Path

from rich.console import Console

from edge_server.observability.dashboard.run_reader import read_facts
from edge_server.observability.dashboard.run_view import run_value
from edge_server.observability.kept_features import describe_kept, kept_features
from edge_server.observability.report.contents import RunContents
from edge_server.observability.report.document import Table
from edge_server.observability.report.sections import feature_sections
from edge_server.observability.terminal.final_summary import print_closing
from edge_server.storage.records import RoundRecord
from schemas.values import KeptFeatures
from tests.edge_server.observability.terminal.shown import record, snapshot, summary


def kept(examples: int, computed: int) -> KeptFeatures:
    return KeptFeatures(examples=examples, computed=computed, bytes=1000 * examples)


# A photo more in round 3; "b" took part in one round.
HISTORY: tuple[RoundRecord, ...] = (
    record(1, features={"a": kept(30, 30), "b": kept(20, 20)}),
    record(2, features={"a": kept(30, 0)}),
    record(3, features={"a": kept(31, 1)}),
)
ABOUT = "51 examples passed frozen layers on 2 devices; 60 passes more were not needed, and 51 kB are kept"


def test_a_row_counts_what_a_device_computed_and_in_which_rounds() -> None:
    assert [device.as_row() for device in kept_features(HISTORY)] == [
        ["a", "31", "31", "60", "31 kB", "1, 3"],
        ["b", "20", "20", "0", "20 kB", "1"],
    ]
    assert describe_kept(kept_features(HISTORY)) == ABOUT
    assert describe_kept(kept_features([record(1)])) == ""


def test_a_device_that_claims_more_than_its_examples_has_no_negative_count() -> None:
    (device,) = kept_features([record(1, features={"a": kept(1, 5)})])
    assert device.hits == 0


def test_many_rounds_are_counted() -> None:
    history = [record(number, features={"a": kept(1, 1)}) for number in range(1, 9)]
    (device,) = kept_features(history)
    assert device.as_row()[-1] == "1, 2, 3, 4, 5, 6, 2 more"


def test_the_closing_output_says_what_was_computed_once() -> None:
    console = Console(width=120, record=True, file=io.StringIO())
    print_closing(console, snapshot(summary=summary(), history=HISTORY))
    assert f"features: {ABOUT}\n" in console.export_text()


def test_the_report_has_a_row_per_device_and_nothing_without_features(tmp_path: Path) -> None:
    (section,) = feature_sections(RunContents(tmp_path, summary(), HISTORY, "", {}))
    (table,) = section.blocks
    assert isinstance(table, Table)
    assert ABOUT in table.caption
    assert [row[0].text for row in table.rows] == ["a", "b"]
    assert feature_sections(RunContents(tmp_path, summary(), (record(1),), "", {})) == ()


def test_the_page_has_a_row_per_device(tmp_path: Path) -> None:
    live = run_value(read_facts(tmp_path), snapshot(history=HISTORY), now=0.0, live=True)
    assert live["features"]["about"] == ABOUT
    assert [row[0] for row in live["features"]["rows"]] == ["a", "b"]
    assert run_value(read_facts(tmp_path), snapshot(), now=0.0, live=True)["features"] is None
