"""A device's own classes in its birth message, in its tasks, and in accuracy measurements."""

import json
import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edge_client.agent.presence import Presence, card_of
from edge_client.agent.rollout.comparison_process import read_examples, write_examples
from edge_client.agent.settings import AgentSettings
from edge_client.cli.main import main
from edge_client.data.dataset import LabelledData, make_labelled_data
from edge_client.data.local import LocalData
from edge_client.transport.broker_link import BrokerAddress
from schemas.errors import PeerError, Reason
from schemas.messages import Birth, TaskReply, encode_message
from schemas.values import CapabilityProfile, ModelSpec, Preprocessing
from tests.edge_client.agent.session.by_hand import DEVICE, FEDERATION, task
from tests.edge_client.agent.test_agent_restart import Life, no_threads  # noqa: F401
from tests.edge_client.inference.test_onnx_model import write_model

TEN = tuple("0123456789")


def given(labels: list[int], names: tuple[str, ...] = ()) -> LabelledData:
    return make_labelled_data(np.zeros((len(labels), 1, 8, 8), np.uint8), np.array(labels), class_names=names)


def local(labels: list[int], names: tuple[str, ...] = ()) -> LocalData:
    return LocalData(given(labels, names), given([], names))


def of_classes(*names: str, outputs: int = 10) -> dict[str, object]:
    """The task fields for a model with these classes."""
    model = ModelSpec(name="mlp", input_shape=(1, 8, 8), num_classes=outputs)
    return {"model": model, "preprocessing": Preprocessing(class_names=names)}


def test_a_device_with_some_classes_trains_with_the_federations_numbers() -> None:
    data = LocalData(given([0, 1, 2], ("3", "7", "9")), given([2], ("3", "7", "9")))
    mapped = data.as_the_server_says(task(**of_classes(*TEN)))
    assert mapped.train.labels.tolist() == [3, 7, 9]
    assert mapped.held_out.labels.tolist() == [9]


@pytest.mark.parametrize(
    ("data", "names", "why"),
    [
        (given([0, 1], ("ant", "wasp")), ("ant", "bee"), "unknown class 'wasp'.*'ant', 'bee'.*'ant', 'wasp'"),
        (given([0, 2]), ("ant", "bee"), "labels up to 2"),
        (given([0, 1], ("ant", "bee")), (), "unknown class 'ant', 'bee': the federation knows none"),
    ],
)
def test_classes_unknown_to_the_task_are_declined(
    data: LabelledData, names: tuple[str, ...], why: str
) -> None:
    with pytest.raises(PeerError, match=why) as declined:
        LocalData(data, data).check(task(**of_classes(*names)))
    assert declined.value.reason is Reason.INCOMPATIBLE


@pytest.mark.parametrize(
    ("own", "names", "outputs", "labels"),
    [
        ([1, 2], TEN, 10, [1, 2]),
        ([1, 2], TEN[1:], 9, [0, 1]),
        ([2, 5], TEN[1:], 9, [1, 4]),
        ([1, 2], (), 3, [1, 2]),
    ],
)
def test_a_device_without_class_0_is_not_renumbered_but_takes_the_federations_numbers(
    own, names, outputs, labels
) -> None:
    mapped = local(own).as_the_server_says(task(**of_classes(*names, outputs=outputs)))
    assert mapped.train.labels.tolist() == labels


def test_more_names_than_the_model_has_outputs_are_declined() -> None:
    with pytest.raises(PeerError, match="the model has 2 classes, the federation names 3"):
        LocalData(given([0]), given([0])).check(task(**of_classes("a", "b", "c", outputs=2)))


def test_a_device_declines_before_it_fetches_anything(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    life = Life(tmp_path)
    own = given([0, 1], ("ant", "bee"))
    life.agent.runner.context = replace(life.agent.runner.context, data=LocalData(own, own))
    with caplog.at_level(logging.WARNING):
        life.hear(task(**of_classes(*TEN)))
    (reply,) = life.published(TaskReply)
    assert (reply.accepted, reply.reason) == (False, Reason.INCOMPATIBLE)
    assert "unknown class 'ant'" in reply.detail
    assert "the federation knows '0', '1'" in caplog.text
    assert not life.started


def test_a_birth_contains_class_names_but_no_counts_per_class() -> None:
    card = card_of(local([0, 0, 0, 1], ("wasp", "ant")), source="folder:photos")
    assert (card.named, card.class_names, card.num_classes, card.examples) == (True, ("wasp", "ant"), 2, 4)
    assert set(card.model_dump()) == {
        *("source", "examples", "input_shape", "num_classes", "named", "class_names", "columns")
    }
    unnamed = card_of(local([0, 4]), source="digits")
    assert (unnamed.named, unnamed.class_names, unnamed.num_classes) == (False, (), 5)


@pytest.mark.parametrize(
    ("labels", "card"),
    [
        # Of numbers from 1 the birth says how far they reach, as of all numbers.
        ([1, 26], (False, (), 27)),
        ([1, 1], (False, (), 2)),
        ([-1, 1], (True, ("-1", "1"), 2)),
    ],
)
def test_a_birth_says_what_labels_without_names_are(labels, card) -> None:
    made = card_of(local(labels), source="npz:a")
    assert (made.named, made.class_names, made.num_classes) == card


@pytest.mark.parametrize("names", [[f"c{n}" for n in range(201)], ["x" * 90] * 30, ["x" * 101], [""]])
def test_names_that_do_not_fit_are_omitted_with_a_warning(
    names: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    own = tuple(name if len(names) == 1 else f"{number}{name}" for number, name in enumerate(names))
    with caplog.at_level(logging.WARNING):
        card = card_of(local([0], own), source="folder:photos")
    assert (card.named, card.class_names) == (True, ())
    assert "[data] classes" in caplog.text


def test_a_birth_that_would_be_too_large_omits_the_names(tmp_path: Path) -> None:
    software = {f"library {number}": "x" * 400 for number in range(6)}
    settings = AgentSettings(
        *(FEDERATION, DEVICE, BrokerAddress("nowhere", 1), tmp_path, "folder:photos"),
        CapabilityProfile(software=software),
    )
    names = tuple(f"a class of some length, number {number}" for number in range(45))
    birth = Presence(settings, local([0], names)).begin_session(1)
    assert (birth.data.named, birth.data.class_names) == (True, ())
    assert len(encode_message(birth)) <= Birth.max_bytes


def test_infer_measures_accuracy_by_the_class_names_of_an_archive(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = write_model(tmp_path / "model.onnx")  # classes ant, bee and cat; the logits are its inputs
    images = np.eye(3, dtype=np.float32).reshape(3, 1, 1, 3)
    names = np.array(["cat", "bee", "ant"])
    np.savez(tmp_path / "set.npz", images=images, labels=[2, 1, 0], class_names=names)
    assert main(["infer", str(model), str(tmp_path / "set.npz"), "--format", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["accuracy"] == 1.0
    assert [result["top"][0]["name"] for result in answer["results"]] == ["ant", "bee", "cat"]
    np.savez(tmp_path / "set.npz", images=images, labels=[0, 0, 0], class_names=np.array(["wasp"]))
    assert main(["infer", str(model), str(tmp_path / "set.npz")]) == 2
    assert "'wasp' is not a class of model.onnx" in capsys.readouterr().err


def test_infer_measures_numbers_from_1_by_the_models_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    numbered = {
        "input.shape": "[1, 1, 3]",
        "preprocessing": '{"scale": 1.0}',
        "class_names": '["1", "2", "3"]',
    }
    model = write_model(tmp_path / "model.onnx", metadata=numbered)
    images = np.eye(3, dtype=np.float32).reshape(3, 1, 1, 3)
    for labels, right in (([1, 2, 3], 3), ([1, 2, 2], 2)):
        np.savez(tmp_path / "set.npz", images=images, labels=labels)
        assert main(["infer", str(model), str(tmp_path / "set.npz"), "--format", "json"]) == 0
        assert json.loads(capsys.readouterr().out)["accuracy"] == pytest.approx(right / 3)


def test_examples_for_a_comparison_keep_the_numbers_of_their_classes(tmp_path: Path) -> None:
    data = local([1, 2, 3, 3])
    write_examples(tmp_path / "examples.npz", data, most=4)
    assert read_examples(tmp_path / "examples.npz")[0].numbers.tolist() == [1, 2, 3, 3]
