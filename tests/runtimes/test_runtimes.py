"""The table of runtimes is that of the results, in which an answer that is off is named."""

from edge_client.inference.runtimes import RUNTIMES, TOLERANCE
from edge_client.models.registry import MODELS
from tests.runtimes.__main__ import TABLE, read_results
from tests.runtimes.environments import ENVIRONMENTS, TITLES
from tests.runtimes.page import page_of

REFUSED = {("litert", "cnn-group-2")}
"""What `onnx2tf` converts wrongly, with 32 channels of 32 by 32 pixels. `models export` refuses it."""


def test_the_page_has_every_network_and_runtime() -> None:
    results = read_results()
    assert {each.runtime for each in ENVIRONMENTS.values()} == {*RUNTIMES}
    assert {*results} == {*TITLES}
    assert {file.rpartition("-")[0] for rows in results.values() for file in rows} == {*MODELS}
    assert TABLE.read_text() == page_of(results)


def test_every_other_answer_is_that_of_onnxruntime() -> None:
    rows = {(name, file): row for name, rows in read_results().items() for file, row in rows.items()}
    assert {place for place, row in rows.items() if not max(row["differences"]) <= TOLERANCE} == REFUSED
