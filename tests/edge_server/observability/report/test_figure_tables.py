"""The report's table of all figures, of any task, and the figure of each output."""

from edge_server.observability.figures import leading_metric, measured_figures, measured_name, range_text
from edge_server.observability.report.document import Paragraph, Table
from edge_server.observability.report.figure_tables import figure_section
from edge_server.storage.records import RoundRecord
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


def test_a_summary_names_its_figure_and_where_it_was_measured() -> None:
    regression = summary(test_accuracy=None, best_accuracy=None, test_metrics=MAE, best_metric=0.125)
    assert measured_name(regression) == "test mae"
    assert measured_figures(regression) == ("0.25", "0.125")
    personal = summary(test_accuracy=None, best_accuracy=None, client_metrics={"accuracy": 0.5})
    assert measured_name(personal) == "accuracy on devices"
    assert measured_figures(personal) == ("50.00%", "")
