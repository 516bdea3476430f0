"""Tries a written file on the three paths of the product: training, `infer` and `serve`."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from edge_client.data.dataset import LabelledData
from edge_client.data.shapes import fit_images
from edge_client.data.sources import load_source
from edge_client.data.tasks.labels import in_task
from edge_client.data.tasks.registry import learning_task
from edge_client.inference.onnx_model import LoadedModel, load_model
from edge_client.inference.queries import read_input
from edge_client.inference.service.requests import read_request
from schemas.errors import ConfigError, PeerError
from schemas.values import Preprocessing
from tests.file_matrix.rows import FOLDER, PATHS, Array, Row, Truth, as_units

State = Literal["equal", "refused", "unintended", "wrong", "none"]


@dataclass(frozen=True)
class Cell:
    """What became of a file on one path, with the message or the difference."""

    state: State
    words: str = ""


@dataclass(frozen=True)
class Result:
    """A row's cells by path, and the number of files that were written."""

    row: Row
    files: int
    cells: dict[str, Cell]


@dataclass(frozen=True)
class _Case:
    """A written row: source and folder, the truth, and the preprocessing that training has found."""

    row: Row
    folder: Path
    truth: Truth
    about: Preprocessing

    def placed(self, source: str) -> str:
        """A source with the folder in it."""
        return source.replace(FOLDER, str(self.folder))

    @property
    def names(self) -> tuple[str, ...]:
        return self.about.class_names


def try_row(row: Row, folder: Path) -> Result:
    """Write the files of a row into an empty folder, and try them; raises if the writer itself fails."""
    truth = row.write(folder) or row.truth
    assert truth is not None, f"{row.kind} by {row.writer} has no truth"
    files = sum(path.is_file() for path in folder.rglob("*"))
    case = _Case(row, folder, truth, _assumed(truth))
    data: list[LabelledData] = []
    cells = dict.fromkeys(PATHS, Cell("none"))
    if "training" in row.paths:
        cells["training"] = _cell(lambda: _train(case, data), row, "training")
    if data:
        case = replace(case, about=data[0].preprocessing)
    if "infer" in row.paths:
        cells["infer"] = _cell(lambda: _infer(case), row, "infer")
    if "serve" in row.paths and row.requests:
        cells["serve"] = _cell(lambda: _serve(case), row, "serve")
    return Result(row, files, cells)


def _cell(difference: Callable[[], str], row: Row, path: str) -> Cell:
    try:
        words = difference()
    except (ConfigError, PeerError) as error:
        text = str(error)
        intended = row.intended.get(path)
        return Cell("refused" if intended is not None and intended in text else "unintended", text)
    except Exception as error:
        # Whatever else a reader raises is a fault of ours.
        return Cell("wrong", f"{type(error).__name__}: {error}")
    if path in row.intended:
        return Cell("wrong", "taken, though it is to be refused")
    return Cell("wrong", words) if words else Cell("equal")


def _train(case: _Case, into: list[LabelledData]) -> str:
    """The difference of what a device trains on, after one step of training; `into` gets the data."""
    data = load_source(case.placed(case.row.source), split=case.row.split)
    into.append(data)
    if data.input_shape != case.truth.inputs.shape[1:]:
        return f"inputs {list(data.input_shape)}, not {list(case.truth.inputs.shape[1:])}"
    data = in_task(data, case.truth.task, data.class_names)
    if words := _differ(case.truth, data.images, data.labels, data.class_names, data.preprocessing):
        return words
    return _step(data)


def _step(data: LabelledData) -> str:
    """Train a small network for a step; words if its loss is not a number."""
    # Imported here: torch takes seconds.
    from edge_client.models.cnn import MLP
    from edge_client.training.loop import train
    from schemas.strategy import TrainingPlan

    outputs = data.learning_task.outputs(data.num_classes, data.input_shape)
    plan = TrainingPlan(optimizer="sgd", learning_rate=0.01, batch_size=64, local_epochs=1, seed=3)
    loss = train(MLP(data.input_shape, outputs, hidden=4), data, plan).metrics.train_loss
    return "" if loss is not None and np.isfinite(loss) else f"the loss of a step is {loss}"


def _infer(case: _Case) -> str:
    model = _model(case)
    named = read_input(Path(case.placed(case.row.asked or case.row.source)), model)
    model.predict(named.images)
    images = fit_images(named.images, model.input_shape)
    assert images is not None
    return _differ(case.truth, images, named.labels, case.names, model.preprocessing)


def _serve(case: _Case) -> str:
    """The difference of the first file whose bytes are not read as their part of the truth."""
    model, paths = _model(case), sorted(case.folder.glob(case.row.requests))
    assert paths, f"no file is named {case.row.requests}"
    for path, inputs in zip(paths, np.split(case.truth.inputs, len(paths)), strict=True):
        images = read_request(path.read_bytes(), model).images
        model.predict(images)
        found = as_units(images, model.preprocessing.scale)
        if words := _differ_by(inputs, found, case.truth.tolerance):
            return f"{path.name}: {words}"
    return ""


def _model(case: _Case) -> LoadedModel:
    """A linear ONNX model whose metadata are those of a model trained on the data."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    from edge_client.inference.export.metadata import describe

    shape, learnt = case.truth.inputs.shape[1:], learning_task(case.truth.task)
    outputs = learnt.width(learnt.outputs(max(len(case.names), 1), shape), shape)
    weights = np.random.default_rng(7).normal(size=(int(np.prod(shape)), outputs)).astype(np.float32)
    nodes = [
        helper.make_node("Flatten", ["input"], ["flat"], axis=1),
        helper.make_node("MatMul", ["flat", "weights"], ["output"]),
    ]
    given = helper.make_tensor_value_info("input", TensorProto.FLOAT, ["batch", *shape])
    made = helper.make_tensor_value_info("output", TensorProto.FLOAT, ["batch", outputs])
    graph = helper.make_graph(nodes, "linear", [given], [made], [numpy_helper.from_array(weights, "weights")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    task = case.truth.task
    describe(model, input_shape=shape, preprocessing=case.about, provenance={}, task=task)
    data: bytes = onnx.ModelProto.SerializeToString(model)
    return load_model(Path("linear.onnx"), threads=1, data=data)


def _assumed(truth: Truth) -> Preprocessing:
    """The preprocessing of a model where training has found none."""
    names = tuple(dict.fromkeys(truth.labels)) if isinstance(truth.labels, (list, tuple)) else ()
    return Preprocessing(scale=1.0, class_names=tuple(sorted(names)))


def _differ(
    truth: Truth, images: Array, labels: Array | None, names: tuple[str, ...], about: Preprocessing
) -> str:
    """How images and labels differ from the truth; empty if they do not."""
    if words := _differ_by(truth.inputs, as_units(images, about.scale), truth.tolerance):
        return words
    if labels is None or truth.task == "anomaly":
        return ""
    if isinstance(truth.labels, np.ndarray):
        return _differ_by(truth.labels, labels, truth.tolerance).replace("inputs", "labels")
    if set(names) != set(truth.labels):
        return f"classes {sorted(names)}, not {sorted(set(truth.labels))}"
    found = [names[int(label)] for label in labels] if labels.ndim == 1 else labels.tolist()
    return "" if found == list(truth.labels) else f"labels {found[:4]}, not {list(truth.labels)[:4]}"


def _differ_by(expected: Array, found: Array, tolerance: float) -> str:
    if expected.shape != found.shape:
        return f"inputs {list(found.shape)}, not {list(expected.shape)}"
    # Relative to the largest value: float32 has seven digits.
    difference = np.abs(expected.astype(np.float64) - found).max(initial=0.0)
    bound = tolerance * max(1.0, float(np.abs(expected).max(initial=0.0)))
    return "" if difference <= bound else f"inputs differ by {difference:.3g}"
