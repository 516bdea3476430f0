"""A model file names its columns: `infer`, requests and comparisons map by name, and refuse other columns."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from edge_client.agent.local_source import model_statistics
from edge_client.agent.rollout.comparison_process import compare_models
from edge_client.cli.main import main
from edge_client.data.columns import features_of
from edge_client.data.dataset import LabelledData, make_labelled_data
from edge_client.inference.export.metadata import describe
from edge_client.inference.onnx_model import LoadedModel, load_model
from edge_client.inference.service.json_lines import answer_line
from edge_client.inference.service.requests import read_request
from schemas.errors import ConfigError
from schemas.values import Preprocessing
from tests.edge_client.inference.test_onnx_model import write_model

ORDERS = {"same": ("a", "b", "c"), "other": ("c", "a", "b")}
CLASSES = ("ant", "bee", "cat")


def write(path: Path, shape: tuple[int, ...] = (3,), columns: tuple[str, ...] = ("a [V]", "b", "c")) -> Path:
    """A model whose logits are its inputs: class number n has the greatest value in column n."""
    message = onnx.load(write_model(path, shape=shape))
    about = Preprocessing(scale=1.0, class_names=CLASSES, columns=features_of(columns))
    describe(message, input_shape=shape, preprocessing=about, provenance={})
    onnx.save(message, str(path))
    return path


@pytest.fixture
def model(tmp_path: Path) -> LoadedModel:
    return load_model(write(tmp_path / "model.onnx"), threads=1)


def examples(order: tuple[str, ...]) -> LabelledData:
    """Three examples, of which number n has its 1 in the n-th of the columns a, b and c."""
    images = np.eye(3, dtype=np.float32)[:, [ORDERS["same"].index(name) for name in order]]
    about = Preprocessing(scale=1.0, columns=features_of(order))
    return make_labelled_data(images, np.arange(3), class_names=CLASSES, preprocessing=about)


def write_csv(path: Path, order: tuple[str, ...]) -> Path:
    lines = [",".join(map(str, row)) for row in examples(order).images]
    named = [f"{line},{name}" for line, name in zip(lines, CLASSES, strict=True)]
    path.write_text("\n".join([",".join((*order, "label")), *named]) + "\n")
    return path


def test_columns_have_a_key_of_their_own(model: LoadedModel) -> None:
    assert json.loads(model.metadata["columns"]) == [{"name": "a", "unit": "V"}, {"name": "b"}, {"name": "c"}]
    assert "columns" not in json.loads(model.metadata["preprocessing"])
    assert model.preprocessing.columns == features_of(("a [V]", "b", "c"))


@pytest.mark.parametrize("order", ORDERS)
def test_infer_gives_the_same_answers_for_a_table_in_another_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], order: str
) -> None:
    path, table = write(tmp_path / "model.onnx"), write_csv(tmp_path / "t.csv", ORDERS[order])
    assert main(["infer", str(path), f"csv:{table}?label=label", "--format", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["accuracy"] == 1.0
    assert [result["top"][0]["name"] for result in answer["results"]] == list(CLASSES)


@pytest.mark.parametrize(
    ("order", "why"),
    [
        (("a", "b", "x"), "unknown column 'x' and no column 'c': the model takes 'a [V]', 'b', 'c' (3)"),
        (("a [mV]", "b", "c"), "the column 'a' is in mV here, and the model takes V"),
    ],
)
def test_infer_refuses_other_columns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], order: tuple[str, ...], why: str
) -> None:
    path = write(tmp_path / "model.onnx")
    (tmp_path / "t.csv").write_text(",".join(order) + "\n1,2,3\n")
    assert main(["infer", str(path), f"csv:{tmp_path / 't.csv'}"]) == 2
    assert why in capsys.readouterr().err


def ask(model: LoadedModel, values: Any) -> list[list[float]]:
    return read_request(json.dumps({"values": values}).encode(), model).images.tolist()


def test_requests_give_values_by_name_in_any_order(model: LoadedModel) -> None:
    assert ask(model, {"c": 3, "a": 1.5, "b": True}) == [[1.5, 1.0, 3.0]]
    assert ask(model, {"c": 3, "a [V]": 1, "b": 2}) == [[1.0, 2.0, 3.0]]
    assert ask(model, [{"a": 1, "b": 2, "c": 3}, {"c": 6, "b": 5, "a": 4}]) == [[1, 2, 3], [4, 5, 6]]
    answer = answer_line('{"values": {"c": 9, "a": 1, "b": 2}, "id": "x"}', 1, model, top=1)
    assert (answer["id"], answer["results"][0]["top"][0]["name"]) == ("x", "cat")


def test_requests_give_windows_as_a_list_for_each_column(tmp_path: Path) -> None:
    model = load_model(write(tmp_path / "model.onnx", shape=(3, 2)), threads=1)
    window = {"b": [3, 4], "c": [5, 6], "a": [1, 2]}
    assert ask(model, window) == [[[1, 2], [3, 4], [5, 6]]]
    assert ask(model, [window, window]) == [[[1, 2], [3, 4], [5, 6]]] * 2
    with pytest.raises(ConfigError, match="takes examples of 3x2, got 1x3"):
        ask(model, {"a": 1, "b": 2, "c": 3})


@pytest.mark.parametrize(
    ("values", "why"),
    [
        (
            {"a": 1, "b": 2},
            "no column 'c': the model takes 'a .V.', 'b', 'c' .3., this data has 'a', 'b' .2.",
        ),
        ({"a": 1, "b": 2, "c": 3, "d": 4}, "unknown column 'd'"),
        ({"a [mV]": 1, "b": 2, "c": 3}, "is in mV here, and the model takes V"),
        ({"a": 1, "b": None, "c": 3}, "not all finite"),
        ({"a": 1, "b": [2], "c": 3}, "'values' are not numbers"),
        ({"a": 1, "b": "warm", "c": 3}, "'values' are not numbers"),
        ([{"a": 1, "b": 2, "c": 3}, 4], "are given by name"),
        ([], "are given by name"),
        (7, "are given by name"),
        ({"": 1}, "no name that can be compared"),
    ],
    ids=str,
)
def test_other_values_are_refused(model: LoadedModel, values: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        ask(model, values)


def test_a_model_without_names_takes_no_values_by_name(tmp_path: Path) -> None:
    model = load_model(write_model(tmp_path / "model.onnx"), threads=1)
    with pytest.raises(ConfigError, match="does not name its columns: send 'pixels'"):
        ask(model, {"a": 1})


@pytest.mark.parametrize("order", ORDERS)
def test_comparisons_and_tests_for_drift_take_columns_by_name(tmp_path: Path, order: str) -> None:
    model = load_model(write(tmp_path / "model.onnx"), threads=1)
    data = examples(ORDERS[order])
    found = compare_models(model.path, model, data)
    assert found["candidate"]["accuracy"] == found["running"]["accuracy"] == 1.0
    # Of logits 1, 0, 0 the right class has the probability e / (e + 2).
    expected = np.full(3, np.e / (np.e + 2))
    np.testing.assert_allclose(model_statistics(model, data)["confidence"], expected, rtol=1e-6)
