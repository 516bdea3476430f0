"""The report's table of all figures, of any task, and the figure of each output."""

from edge_server.observability.figures import leading_metric, measured_figures, measured_name, range_text
from edge_server.observability.report.document import Paragraph, Table
from edge_server.observability.report.figure_tables import figure_section
from edge_server.storage.records import MeasuredDevice, RoundRecord
from tests.edge_server.observability.terminal.shown import record, summary

MAE = {"mae": 0.25, "rmse": 0.5, "r2": 0.75}


def measured(number: int, **more: object) -> RoundRecord:
    return record(number, test_accuracy=None, tier_accuracy={}, client_accuracy=None, **more)


def test_figures_of_a_regression_are_numbers_with_their_names() -> None:
    by_output = {"co2": 0.25, "light": 1.5}
    tiers = {1: {"mae": 0.5}}
    history = [measured(1, test_metrics=MAE, tier_metrics=tiers, test_by_output=by_output)]
    whole, outputs = figure_section(history, "regression").blocks
    assert isinstance(whole, Table)
    assert whole.columns == ("model", "mae", "rmse", "r2")
    assert [[cell.text for cell in row] for row in whole.rows] == [
        ["whole model, test data", "0.25", "0.5", "0.75"],
        ["tier 1, test data", "0.5", "-", "-"],
    ]
    assert isinstance(outputs, Table)
    assert outputs.columns == ("output", "mae")
    assert [[cell.text for cell in row] for row in outputs.rows] == [["co2", "0.25"], ["light", "1.5"]]


def test_recalls_of_classes_are_shares() -> None:
    history = [measured(1, test_metrics={"accuracy": 0.5}, test_by_output={"cat": 0.75})]
    outputs = figure_section(history, "classification").blocks[1]
    assert isinstance(outputs, Table)
    assert outputs.columns == ("output", "recall")
    assert outputs.rows[0][1].text == "75.00%"


def rows(block: object) -> list[list[str]]:
    assert isinstance(block, Table)
    return [[cell.text for cell in row] for row in block.rows]


def test_shares_of_classes_have_their_examples_and_intervals() -> None:
    counts = {"cat": (4, 3), "dog": (0, 0)}
    history = [
        measured(1, test_metrics={"accuracy": 0.75}, test_by_output={"cat": 0.75}, test_by_class=counts)
    ]
    outputs = figure_section(history, "classification").blocks[1]
    assert isinstance(outputs, Table)
    assert outputs.columns == ("output", "recall", "examples", "95 % interval of recall")
    # Wilson: (0.75 + 0.48018 -+ 1.96 sqrt(0.75 * 0.25 / 4 + 3.84146 / 64)) / 1.96036, 3.84146 = 1.96^2.
    assert rows(outputs) == [["cat", "75.00%", "4", "30.06% - 95.44%"]]
    flags = [measured(1, test_metrics={"macro-f1": 0.5}, test_by_output={"cat": 0.5}, test_by_class=counts)]
    outputs = figure_section(flags, "multi-label").blocks[1]
    assert isinstance(outputs, Table)
    assert outputs.columns == ("output", "f1", "examples", "recall", "95 % interval of recall")
    assert rows(outputs) == [["cat", "50.00%", "4", "75.00%", "30.06% - 95.44%"]]


def test_devices_that_counted_their_classes_have_a_table_together_and_one_each() -> None:
    devices = {
        "a": MeasuredDevice(tier=1, examples=4, by_class={"cat": (3, 2), "dog": (1, 0)}),
        "b": MeasuredDevice(tier=2, examples=1, by_class={"cat": (1, 1), "dog": (0, 0)}),
        "c": MeasuredDevice(tier=2, examples=9),
    }
    history = [measured(1, client_metrics={"accuracy": 0.5}, measured=devices)]
    _, pooled, each = figure_section(history, "classification").blocks
    # 3 of 4 cats; 0 of 1 dogs, whose interval ends at 3.84146 / 4.84146.
    assert rows(pooled) == [
        ["cat", "4", "75.00%", "30.06% - 95.44%"],
        ["dog", "1", "0.00%", "0.00% - 79.35%"],
    ]
    assert rows(each) == [["a", "67% of 3", "0% of 1"], ["b", "100% of 1", "-"]]


def test_classes_of_a_detector_have_boxes() -> None:
    counts = {"cat": (4, 3)}
    device = MeasuredDevice(tier=1, examples=2, by_class=counts)
    figures = {"test_metrics": {"map50": 0.5}, "test_by_output": {"cat": 0.5}, "test_by_class": counts}
    _, outputs, pooled, _ = figure_section(
        [measured(1, **figures, measured={"a": device})], "detection"
    ).blocks
    assert outputs.columns == ("output", "ap50", "boxes", "recall", "95 % interval of recall")
    assert pooled.columns == ("class", "boxes", "recall", "95 % interval of recall")
    assert "the share of its boxes that is recognised" in str(pooled.caption)


def test_many_classes_have_no_column_each() -> None:
    many = MeasuredDevice(tier=1, examples=21, by_class={str(number): (1, 1) for number in range(21)})
    history = [measured(1, client_metrics={"accuracy": 0.5}, measured={"a": many})]
    _, pooled = figure_section(history, "classification").blocks
    assert len(rows(pooled)) == 21


def test_a_run_that_measured_nothing_says_so() -> None:
    (block,) = figure_section([measured(1)], "classification").blocks
    assert isinstance(block, Paragraph)
    assert block.text == "Nothing was measured."


def test_the_leading_metric_is_the_newest_rounds_first_figure() -> None:
    assert leading_metric([measured(1, test_metrics=MAE), measured(2)]).name == "mae"
    assert leading_metric([]).name == "accuracy"
    assert leading_metric([measured(1, client_metrics={"macro-f1": 0.5})]).name == "macro-f1"
    mae = leading_metric([measured(1, test_metrics=MAE)])
    assert range_text(mae, {1: {"mae": 0.5}, 2: {"mae": 0.25}}) == "0.25-0.5"
    tiers = {1: {"accuracy": 0.961}, 2: {"accuracy": 0.9612}}
    assert range_text(leading_metric([]), tiers) == "96.10-96.12%"
    assert range_text(leading_metric([]), {1: tiers[1]}) == "96.10%"


def test_a_summary_names_its_figure_and_where_it_was_measured() -> None:
    regression = summary(test_metrics=MAE, best_metric=0.125)
    assert measured_name(regression) == "test mae"
    assert measured_figures(regression) == ("0.25", "0.125")
    personal = summary(test_metrics={}, client_metrics={"accuracy": 0.5})
    assert measured_name(personal) == "accuracy on devices"
    assert measured_figures(personal) == ("50.00%", "")
