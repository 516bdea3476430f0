"""The tables at the end of a run."""

import io

import pytest
from rich.console import Console

from edge_server.observability.terminal.final_summary import print_closing
from edge_server.observability.terminal.tables import LAST_ROUNDS, device_table, round_table, trial_table
from edge_server.storage.records import DeviceRecord, TrainedShare
from schemas.values import DeliveryVerdict, Personalisation
from tests.edge_server.observability.terminal.shown import MEASURED, drawn, record, scored, snapshot, summary


def test_the_device_table_marks_runtimes_that_differ() -> None:
    other = MEASURED.model_copy(update={"device": "board", "onnx_accuracy": 0.9122})
    rows = [line.split() for line in drawn(device_table(summary(devices=(MEASURED, other))), width=100)]
    same, differs = next(r for r in rows if r[:1] == ["phone"]), next(r for r in rows if r[:1] == ["board"])
    numbers = ["1", "498,365", "5.3", "M", "0", "B", "0", "B", "91.23%"]
    assert same[1:] == [*numbers, "91.23%", "0.457"]
    assert differs[1:] == [*numbers, "91.22%", "differs", "0.457"]


def test_a_device_that_delivered_nothing_has_dashes() -> None:
    bare = DeviceRecord(device="board", tier=5, ratio=0.0)
    lines = drawn(device_table(summary(devices=(MEASURED, bare))), width=100)
    row = next(line for line in lines if line.startswith("board"))
    assert row.split() == ["board", "5", "-", "-", "0", "B", "0", "B", "-", "-", "-"]


def test_devices_without_their_own_models_are_listed_with_their_updates() -> None:
    virtual = DeviceRecord(device="board", tier=1, ratio=0.7, rounds=3, uplink_bytes=2000)
    lines = drawn(device_table(summary(devices=(virtual,))))
    assert lines[1].split() == ["device", "tier", "pruned", "updates", "refused", "down", "up"]
    assert lines[3].split() == ["board", "1", "70%", "3", "0", "0", "B", "2", "kB"]


KEPT = DeliveryVerdict(
    served=False,
    why="accuracy: 10.0% of 96 examples, 98.6% before",
    earlier="home-1 round 4",
    accuracy=0.1003,
    earlier_accuracy=0.9861,
    examples=96,
)


def test_the_trials_of_a_new_model_are_listed_with_both_accuracies() -> None:
    kept = MEASURED.model_copy(update={"onnx_bytes": 9, "verdict": KEPT})
    taken = kept.model_copy(
        update={"device": "board", "verdict": KEPT.model_copy(update={"served": True, "why": "98.6% before"})}
    )
    first = MEASURED.model_copy(
        update={"verdict": DeliveryVerdict(served=True, why="no model was in use before")}
    )
    lines = drawn(trial_table((kept, taken, first)), width=100)
    assert [line.split()[:5] for line in lines[3:]] == [
        ["phone", "earlier", "10.03%", "98.61%", "96"],
        ["board", "new", "10.03%", "98.61%", "96"],
    ]
    assert lines[3].endswith("accuracy: 10.0% of 96 examples, 98.6% before")


def test_the_closing_output_lists_trials_if_a_model_was_in_use() -> None:
    def closing(*devices: DeviceRecord) -> str:
        console = Console(width=120, record=True, file=io.StringIO())
        print_closing(console, snapshot(history=(scored(1),), summary=summary(devices=devices)))
        return console.export_text()

    kept = MEASURED.model_copy(update={"onnx_bytes": 9, "verdict": KEPT})
    assert "Trials of the new model" in closing(kept)
    assert "Trials" not in closing(MEASURED)
    # Many devices are counted, not listed.
    assert "30 of 30 devices on trial keep their earlier model" in closing(*[kept] * 30)


def test_the_closing_output_says_what_training_on_own_data_has_changed() -> None:
    def closing(*found: Personalisation) -> str:
        devices = tuple(MEASURED.model_copy(update={"personalisation": each}) for each in found)
        console = Console(width=120, record=True, file=io.StringIO())
        print_closing(console, snapshot(history=(scored(1),), summary=summary(devices=devices)))
        return console.export_text()

    better = Personalisation(kept=True, epochs=2, metric="accuracy", before=0.5, after=0.9)
    worse = Personalisation(kept=False, epochs=2, metric="accuracy", before=0.7, after=0.6, why="60%, 70%")
    unable = Personalisation(kept=False, why="the task has no step graph")
    # (0.9 + 0.7) / 2 after, (0.5 + 0.7) / 2 before: the second device keeps what it has received.
    text = closing(better, worse, unable)
    line = "1 of 3 devices keep the model that they trained on their own data: accuracy 80.00%, 60.00% as"
    assert line in text
    assert [row.split() for row in text.splitlines() if row.startswith("phone ")][3:] == [
        ["phone", "50.00%", "90.00%", "trained", "-"],
        ["phone", "70.00%", "60.00%", "as", "received", "60%,", "70%"],
        ["phone", "-", "-", "as", "received", *unable.why.split()],
    ]
    # Many devices are counted, not listed.
    assert "Models trained" not in closing(*[better] * 30)


def test_the_closing_output_says_what_devices_trained() -> None:
    share = TrainedShare(numbers=(500,), of=10_000, frozen=0)
    console = Console(width=120, record=True, file=io.StringIO())
    print_closing(console, snapshot(summary=summary(trained=share)))
    text = console.export_text()
    assert "devices trained 500 of 10,000 numbers of the network\n" in text
    assert "frozen" not in text


def test_virtual_time_is_labelled() -> None:
    assert drawn(round_table([record(1)]))[1].split()[-2:] == ["up", "time"]
    virtual = record(1).model_copy(update={"virtual_time_s": 1.0})
    assert drawn(round_table([virtual]))[1].split()[-2:] == ["virtual", "time"]


def test_the_round_table_names_dropped_devices() -> None:
    lines = drawn(round_table([record(1), record(2, dropped=("[b]x[/b]",))]))
    assert lines[-1] == "round 2: dropped [b]x[/b]"


def test_a_long_run_ends_with_its_last_rounds() -> None:
    lines = drawn(round_table([record(number) for number in range(1, LAST_ROUNDS + 6)]))
    assert "5 earlier rounds are in history.jsonl" in lines
    assert lines[3].split()[0] == "6"


@pytest.mark.parametrize("width", [80, 120])
def test_the_closing_tables_fit(width: int) -> None:
    devices = (MEASURED, MEASURED.model_copy(update={"device": "b" * 64, "onnx_accuracy": 0.1}))
    console = Console(width=width, record=True, file=io.StringIO())
    end = snapshot(history=(scored(1), record(2)), summary=summary(devices=devices))
    print_closing(console, end)
    lines = console.export_text().splitlines()
    assert max(map(len, lines)) <= width
    assert any("differs" in line and "0.457" in line for line in lines)
