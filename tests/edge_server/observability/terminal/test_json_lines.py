"""A run as JSON lines, and the choice of the display."""

import io
import json

import pytest

from edge_server.observability.terminal.display import JsonLines, PrettyDisplay, make_display
from edge_server.observability.terminal.log_lines import PlainDisplay
from edge_server.storage.records import RoundRecord, Summary
from tests.edge_server.observability.terminal import shown


def test_json_contains_each_round_once_and_then_the_summary() -> None:
    stream = io.StringIO()
    with JsonLines(stream) as display:
        display.show(shown.snapshot(devices=(shown.PHONE,)))
        display.show(shown.snapshot(history=(shown.record(1),)))
        display.show(shown.snapshot(history=(shown.record(1), shown.record(2)), summary=shown.summary()))
    documents = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [document.get("round") for document in documents] == [1, 2, None]
    assert RoundRecord.model_validate(documents[0]) == shown.record(1)
    assert Summary.model_validate(documents[2]) == shown.summary()


def test_json_of_a_run_without_an_end_has_no_summary() -> None:
    stream = io.StringIO()
    shown.interrupt(JsonLines(stream), shown.snapshot(history=(shown.record(1),)))
    assert len(stream.getvalue().splitlines()) == 1


def test_the_stream_and_the_format_choose_the_display(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    assert isinstance(make_display(stream=shown.Terminal()), PrettyDisplay)
    assert isinstance(make_display(stream=io.StringIO()), PlainDisplay)
    assert isinstance(make_display(stream=shown.Terminal(), format="json"), JsonLines)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(make_display(stream=shown.Terminal()), PlainDisplay)
