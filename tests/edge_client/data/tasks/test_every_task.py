"""What holds for every learning task."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from edge_client.data.classes import in_classes
from edge_client.data.dataset import LabelledData, make_labelled_data
from edge_client.data.tasks import detection
from edge_client.data.tasks.labels import in_task
from edge_client.data.tasks.learning_task import Answers
from edge_client.data.tasks.registry import LOSSES, TASKS, learning_task
from edge_client.data.tasks.words import METRICS, figure_text, leading
from edge_client.inference.export.onnx import export_onnx
from edge_client.inference.onnx_model import load_model
from edge_client.inference.quantization.selection import Measured, choose
from edge_client.training import evaluation
from edge_client.training.evaluation import evaluate
from edge_client.training.loop import train
from edge_client.training.step_capture import Recorder
from edge_client.training.step_graphs.drawing.step import draw_step
from schemas.errors import ConfigError
from schemas.strategy import TrainingPlan
from tests.edge_client.data.tasks.examples import examples
from tests.slow import slow

NAMES = list(TASKS)
SIMPLE = [name for name in NAMES if name != "detection"]
"""Tasks that a network of two layers learns; `test_small_detector.py` has the other's."""
QUICK = [name if name in ("multi-label", "forecasting", "detection") else slow(name) for name in NAMES]
"""One task of classes, one of numbers, and one of boxes."""
PLAN = TrainingPlan(learning_rate=0.2, batch_size=10, local_epochs=30)


def outputs_of(data: LabelledData) -> int:
    return data.learning_task.outputs(data.num_classes, data.input_shape)


def width_of(data: LabelledData) -> int:
    return data.learning_task.width(outputs_of(data), data.input_shape)


def network(data: LabelledData) -> nn.Module:
    torch.manual_seed(0)
    inputs = math.prod(data.input_shape)
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, 12), nn.Tanh(), nn.Linear(12, width_of(data)))


def perfect(data: LabelledData) -> np.ndarray:
    """Outputs that are right, with certainty where there are classes."""
    kind = data.learning_task.labels
    if kind == "classes":
        return 50 * np.eye(data.num_classes, dtype=np.float32)[data.labels]
    if kind == "flags":
        return (100 * data.labels - 50).astype(np.float32)
    if kind == "boxes":
        targets = data.targets(data.inputs()).reshape(len(data), detection.TARGET, -1)
        classes = targets[:, :1] == np.arange(data.num_classes)[:, None]
        certain = 100 * np.concatenate([classes, targets[:, -1:]], 1) - 50
        return np.concatenate([certain[:, :-1], targets[:, 1:5], certain[:, -1:]], 1).reshape(len(data), -1)
    return data.targets(data.inputs()).astype(np.float32)


@pytest.mark.parametrize("name", NAMES)
def test_right_outputs_have_the_best_figures_and_no_loss(name: str) -> None:
    data = examples(name)
    task, right = data.learning_task, perfect(data)
    targets = data.targets(data.inputs())
    wrong = np.random.default_rng(1).permutation(right)
    best, worse = (task.measure_answers(Answers(said, targets, data.labels)) for said in (right, wrong))
    for metric in task.metrics:
        if metric.name in best and name != "anomaly":
            assert metric.worsening(best[metric.name], worse[metric.name]) > 0, metric.name
    assert LOSSES[task.loss](right, targets).max() < 1e-6
    assert task.errors(Answers(right, targets, data.labels)).max() == 0


@pytest.mark.parametrize("name", NAMES)
def test_the_loss_is_torchs(name: str) -> None:
    data = examples(name)
    said = np.random.default_rng(2).normal(size=(len(data), width_of(data))).astype(np.float32)
    targets = data.targets(data.inputs())
    found = evaluation.loss_of(name)(torch.from_numpy(said), torch.from_numpy(targets))
    assert LOSSES[data.learning_task.loss](said, targets).mean() == pytest.approx(float(found), rel=1e-6)


@pytest.mark.parametrize("name", SIMPLE)
def test_training_improves_the_leading_figure(name: str) -> None:
    data = examples(name, 200)
    module = network(data)
    before = evaluate(module, data)
    result = train(module, data, PLAN)
    after = evaluate(module, data)
    # Reconstruction is what an unlabelled training can improve.
    metric = METRICS["reconstruction"] if name == "anomaly" else data.learning_task.leading(before.metrics)
    assert metric.worsening(before.metrics[metric.name], after.metrics[metric.name]) < -0.1
    assert result.metrics.train_loss is not None
    assert before.loss is not None
    assert result.metrics.train_loss < before.loss


@pytest.mark.parametrize("name", QUICK)
def test_recorded_steps_have_the_bits_of_plain_ones(name: str) -> None:
    data = examples(name)
    inputs, width = math.prod(data.input_shape), width_of(data)
    plain, recorded = (nn.Sequential(nn.Flatten(), nn.Linear(inputs, width)) for _ in range(2))
    recorded.load_state_dict(plain.state_dict())
    plan = PLAN.model_copy(update={"local_epochs": 3})
    train(plain, data, plan)
    train(recorded, data, plan, recorder=Recorder())
    assert all(map(torch.equal, plain.state_dict().values(), recorded.state_dict().values()))


@pytest.mark.parametrize("name", QUICK)
def test_a_step_can_be_drawn(name: str) -> None:
    data = examples(name)
    # It is compared with torch before it is returned.
    assert draw_step(network(data), data.input_shape, task=data.learning_task)


@pytest.mark.parametrize("name", QUICK)
def test_the_exported_file_knows_its_task(tmp_path: Path, name: str) -> None:
    data = examples(name)
    module, path = network(data).eval(), tmp_path / "model.onnx"
    about = {"preprocessing": data.preprocessing, "provenance": {}}
    export_onnx(module, path, input_shape=data.input_shape, task=name, **about)
    model = load_model(path)
    assert model.task is data.learning_task
    found, known = model.measure_examples(data.images, data.labels), evaluate(module, data).metrics
    assert found == pytest.approx(known, abs=1e-5)
    answers = model.predict(data.images)
    assert len(answers) == len(data)
    key = {"classes": "top", "flags": "top", "boxes": "boxes"}.get(model.task.labels, "outputs")
    assert set(model.result(answers[0])) == {key}


@pytest.mark.parametrize("name", NAMES)
def test_a_variant_is_judged_by_the_leading_figure(name: str) -> None:
    task = TASKS[name]
    metric = task.metrics[0]
    good, bad = (0.9, 0.5) if metric.higher_is_better else (0.5, 0.9)
    export = Measured("fp32", 100, {metric.name: good}, 2.0)
    worse, equal = (Measured("int8", 50, {metric.name: value}, 1.0) for value in (bad, good))
    assert choose(export, [worse], task=task).kept is export
    assert choose(export, [equal], task=task).kept is equal


@pytest.mark.parametrize("name", NAMES)
def test_the_leading_figure_comes_first(name: str) -> None:
    data = examples(name)
    found = evaluate(network(data), data).metrics
    metric, value = leading(found) or (None, None)
    assert metric is not None
    assert metric.name == data.learning_task.leading(found).name
    assert value == found[metric.name]
    assert figure_text(found)


def test_labels_of_another_kind_are_refused_with_the_remedy() -> None:
    classes = make_labelled_data(
        np.zeros((3, 2), np.float32), np.array([0, 1, 2]), class_names=("a", "b", "c")
    )
    numbers = make_labelled_data(np.zeros((3, 2), np.float32), np.array([[0.5], [1.0], [2.0]], np.float32))
    words = r'classification takes one class: set \[model\] task = "regression"'
    with pytest.raises(ConfigError, match=words):
        in_task(numbers, "classification", ())
    with pytest.raises(ConfigError, match="numbers, and these labels are classes with names"):
        in_task(classes, "regression", ())
    with pytest.raises(ConfigError, match="a 0 or 1 per class, labels"):
        in_task(classes, "multi-label", ())
    with pytest.raises(ConfigError, match=r"labels\[0, 0\] is 0.5: multi-label takes a 0 or 1"):
        in_task(numbers, "multi-label", ())
    with pytest.raises(ConfigError, match=r"unknown task 'regresion' .*'regression'"):
        learning_task("regresion")


def test_unnamed_whole_numbers_are_numbers_for_regression() -> None:
    ages = make_labelled_data(np.zeros((3, 2), np.float32), np.array([30, 41, 25]))
    assert in_task(ages, "regression", ()).labels.tolist() == [[30], [41], [25]]


def test_columns_of_labels_are_matched_by_name() -> None:
    rows = make_labelled_data(
        np.zeros((2, 2), np.float32), np.array([[1, 2], [3, 4]], np.float32), class_names=("co2", "light")
    )
    turned = in_classes(rows, ("light", "co2"))
    assert turned.labels.tolist() == [[2, 1], [4, 3]]
    with pytest.raises(ConfigError, match=r"with 2 numbers each.*learns 'light', 'co2', 'noise'"):
        in_classes(rows, ("light", "co2", "noise"))


def test_examples_with_numbers_are_split_by_tenths_of_the_first() -> None:
    data = make_labelled_data(
        np.zeros((100, 2), np.float32), np.arange(100, dtype=np.float32)[::-1, None] / 7
    )
    assert np.bincount(data.strata).tolist() == [10] * 10
    assert data.strata[0] == 9


@pytest.mark.parametrize("name", [name for name in NAMES if TASKS[name].by_class is not None])
def test_right_outputs_recognise_every_example_of_each_class(name: str) -> None:
    data = examples(name)
    task, count = data.learning_task, data.learning_task.by_class
    assert count is not None
    right, targets = perfect(data), data.targets(data.inputs())
    counts = count(Answers(right, targets, data.labels))
    assert counts.shape == (outputs_of(data), 2)
    assert (counts[:, 0] == counts[:, 1]).all()
    total = int(counts[:, 0].sum())
    assert total == len(data) if task.exclusive else 0 < total <= data.labels.size
    # Of the opposite answers none is right.
    assert not count(Answers(-right, targets, data.labels))[:, 1].any()
