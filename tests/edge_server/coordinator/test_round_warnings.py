"""Warnings of a training that goes wrong: one answer for all examples, a loss that rises."""

import io
import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from edge_client.data.tasks.learning_task import Answers
from edge_client.data.tasks.registry import learning_task
from edge_server.config.load import load_config
from edge_server.coordinator.round_warnings import gives_one_answer, with_warnings
from edge_server.observability.dashboard.run_reader import read_facts
from edge_server.observability.dashboard.run_view import run_value
from edge_server.observability.report.report import write_report
from edge_server.observability.snapshot import Snapshot
from edge_server.observability.terminal.final_summary import print_closing
from edge_server.simulation.simulator import simulate
from edge_server.storage.event_list import read_events
from edge_server.storage.records import RoundRecord, RoundWarning
from edge_server.storage.run_files import read_run_files
from tests.edge_server.observability.terminal import shown
from tests.edge_server.own_networks import NAME
from tests.edge_server.simulation.in_process import in_process

ONE = {"accuracy": 0.25, "balanced-accuracy": 0.5, "macro-f1": 0.2}
"""One answer of two, right for a quarter: F1 is 2 * 0.25 / 1.25 = 0.4 for it and 0 for the other."""
GOOD = {"accuracy": 0.9, "balanced-accuracy": 0.9, "macro-f1": 0.9}


STUCK = (
    "num-clients=2",
    "workers=1",
    "learning-rate=30",
    "local-epochs=1",
    "firewall.leave-one-out=0",
    "simulation.hold-out=0.4",
    "firewall.norm-bound=false",
    "federation.roll-back=false",
)


def figures(answers: Sequence[int], labels: Sequence[int], classes: int = 3) -> dict[str, float]:
    outputs = np.eye(classes)[list(answers)]
    return learning_task("classification").measure_answers(
        Answers(outputs, np.array(labels), np.array(labels))
    )


def record(number: int, **fields: object) -> RoundRecord:
    devices = {"selected": ("one", "two"), "completed": ("one", "two")}
    return shown.record(number, **(devices | fields))


def play(rounds: Sequence[Mapping[str, object]], *, last: int = 100) -> list[RoundRecord]:
    """Judge rounds one after the other."""
    history: list[RoundRecord] = []
    for number, fields in enumerate(rounds, start=1):
        history.append(with_warnings(record(number, **fields), history, last=last))
    return history


def given(history: Sequence[RoundRecord]) -> list[tuple[int, str, tuple[str, ...]]]:
    return [(record.round, found.kind, found.about) for record in history for found in record.warnings]


@pytest.mark.parametrize("answer", [0, 1, 2])
def test_one_answer_for_examples_of_several_classes_is_seen_in_its_figures(answer: int) -> None:
    assert gives_one_answer(figures([answer] * 7, [0, 0, 0, 1, 2, 2, 1]))


@pytest.mark.parametrize(
    ("answers", "labels"),
    [
        # All examples have one class.
        ([1, 1, 1], [1, 1, 1]),
        # Half of the balanced accuracy of one answer, but another F1.
        ([0, 0, 1, 1], [0, 1, 0, 1]),
        ([0, 1, 2, 0, 1, 2], [0, 1, 2, 1, 2, 0]),
        ([0, 0, 0, 1], [0, 0, 1, 1]),
        # An answer that is never right.
        ([2, 2], [0, 1]),
    ],
)
def test_several_answers_or_examples_of_one_class_are_not_taken_for_it(
    answers: list[int], labels: list[int]
) -> None:
    assert not gives_one_answer(figures(answers, labels))


@pytest.mark.parametrize("found", [{}, {"mae": 0.3}, {**ONE, "balanced-accuracy": 5e-324}])
def test_figures_of_other_tasks_and_impossible_ones_say_nothing(found: dict[str, float]) -> None:
    assert not gives_one_answer(found)


def test_three_rounds_with_one_answer_make_one_warning_for_each_tier_and_device() -> None:
    stuck = {"tier_metrics": {1: ONE, 2: GOOD}, "one_answer": ("two",)}
    history = play([{"tier_metrics": {1: GOOD, 2: GOOD}}, stuck, stuck, stuck, stuck, stuck])
    assert given(history) == [(4, "one-answer", ("tier 1", "two"))]
    (warning,) = history[3].warnings
    assert warning.text.startswith("tier 1, two: one answer for all held-out examples, 3 rounds in a row: ")
    assert "learning-rate" in warning.text
    later = play([*[stuck] * 4, *[{"tier_metrics": {1: ONE, 2: ONE}, "one_answer": ("two",)}] * 3])
    assert given(later) == [(3, "one-answer", ("tier 1", "two")), (7, "one-answer", ("tier 2",))]


def test_devices_whose_channels_are_dead_are_named_once() -> None:
    history = play([{"dead_channels": {"one": 0.9}}, {"dead_channels": {"one": 0.9, "two": 0.8}}])
    warnings = [[(w.kind, w.about) for w in each.warnings] for each in history]
    assert warnings == [[("dead-channels", ("one",))], [("dead-channels", ("two",))]]
    assert "at least 75% of the channels of a layer answer no example" in history[0].warnings[0].text


def test_devices_whose_sums_cost_the_others_much_are_named_once() -> None:
    found = {"suspects": {"one": "look at its labels"}}
    assert given(play([found, found])) == [(1, "harmful-sums", ("one",))]


def test_a_training_that_begins_with_one_answer_is_given_two_rounds_and_the_last_round_none() -> None:
    slow = {"one_answer": ("one",)}
    assert given(play([slow, slow, {}, slow, slow])) == []
    assert given(play([slow, slow, {}, slow, slow], last=5)) == [(5, "one-answer", ("one",))]
    assert given(play([slow], last=1)) == []


def test_rounds_in_which_a_device_took_no_part_and_rounds_without_a_test_are_skipped() -> None:
    stuck, away = {"one_answer": ("two",)}, {"completed": ("one",)}
    assert given(play([stuck, away, stuck, away, stuck])) == [(5, "one-answer", ("two",))]
    tested = {"test_metrics": ONE}
    assert given(play([tested, {}, tested, {}, tested])) == [(5, "one-answer", ("the model",))]


def test_a_loss_that_rises_by_half_is_told_once() -> None:
    history = play([{"train_loss": loss} for loss in (1.0, 0.4, 0.61, 0.3, 0.9)])
    assert given(history) == [(3, "loss-rise", ("training loss",))]
    assert "risen from 0.400 to 0.610: lower" in history[2].warnings[0].text


@pytest.mark.parametrize("losses", [(1.0, 1.4), (0.02, 0.15), (None, 3.0), (0.4, None)])
def test_a_smaller_rise_or_an_unknown_loss_is_no_warning(losses: Sequence[float | None]) -> None:
    assert given(play([{"train_loss": loss} for loss in losses])) == []


def test_the_losses_of_other_devices_are_not_compared() -> None:
    rounds = [
        {"train_loss": 0.2, "completed": ("one", "two")},
        {"train_loss": 0.9, "completed": ("six", "ten")},
    ]
    assert given(play(rounds)) == []


@in_process()
def test_the_warning_is_in_history_log_events_report_page_and_closing_words(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Steps of a hundred times the usual length: every unit dies, and only the biases answer."""
    words = [f"data.source=python:{NAME}:pictures", f"model.name={NAME}:hidden", *STUCK]
    config = load_config("fedavg", [*words, "rounds=4"])
    seen: list[Snapshot] = []
    with caplog.at_level(logging.WARNING):
        simulate(config, out=tmp_path / "run", watcher=Seen(seen), export=False)
    run = read_run_files(tmp_path / "run")
    (found, *_) = [
        warning for line in run.history for warning in line.warnings if warning.kind == "one-answer"
    ]
    assert any(found.text in entry.getMessage() for entry in caplog.records)
    lines = [json.loads(line) for line in (tmp_path / "run" / "history.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines if "warnings" in line] == [2, 3]
    events = [row.event.text for row in read_events(tmp_path / "run" / "events.sqlite")]
    given_texts = [warning.text for line in run.history for warning in line.warnings]
    assert len(given_texts) > 2
    assert all(any(text in event for event in events) for text in given_texts)
    assert set().union(*(line.dead_channels for line in run.history)) == {"device-0001", "device-0002"}
    write_report(tmp_path / "run")
    assert "tier 1, device-0001, device-0002: one answer" in (tmp_path / "run" / "report.md").read_text()
    page = run_value(read_facts(tmp_path / "run"), None, now=0.0, live=False)
    assert any(found.text in text for text in page["warnings"])
    written = io.StringIO()
    print_closing(Console(file=written, width=500), seen[-1])
    assert f"warning: round {line_of(run.history, found)}: {found.text}" in written.getvalue()


@in_process()
def test_a_resumed_run_gives_no_warning_again(tmp_path: Path) -> None:
    words = [f"data.source=python:{NAME}:pictures", f"model.name={NAME}:hidden", *STUCK]
    for rounds, resume in ((3, False), (6, True)):
        config = load_config("fedavg", [*words, f"rounds={rounds}"])
        simulate(config, out=tmp_path / "run", watcher=Seen([]), export=False, resume=resume)
    history = read_run_files(tmp_path / "run").history
    assert len(history) == 6
    assert len(given(history)) == len({(kind, about) for _, kind, about in given(history)}) == 4


def line_of(history: Sequence[RoundRecord], warning: RoundWarning) -> int:
    return next(record.round for record in history if warning in record.warnings)


class Seen:
    """A watcher that keeps what it is shown."""

    def __init__(self, seen: list[Snapshot]) -> None:
        self._seen = seen

    def show(self, snapshot: Snapshot) -> None:
        self._seen.append(snapshot)
