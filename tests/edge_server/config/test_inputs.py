"""What pictures become before they reach the network, as the file or the weights state it."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from edge_client.models.registry import InputRecord
from edge_server.config.config import Config
from edge_server.config.load import load_config
from edge_server.config.test_data import OF_IMAGENET, describe_inputs, describe_unscaled, with_inputs
from edge_server.coordinator import evaluation
from edge_server.simulation.inputs import training_data
from schemas.errors import ConfigError
from schemas.values import ModelSpec, Preprocessing, Resizing

RECORD = InputRecord(
    size=(24, 32), mean=(0.5, 0.4, 0.3), std=(0.2, 0.2, 0.1), crop=0.9, interpolation="bicubic"
)
CLASSES = "data.classes=['a','b']"


def grey_pictures() -> tuple[np.ndarray, np.ndarray]:
    """A data source of eight grey pictures."""
    return np.arange(8 * 12 * 10, dtype=np.uint8).reshape(8, 1, 12, 10), np.arange(8) % 2


GREY = f"data.source=python:{__name__}:grey_pictures"


def preprocessing_of(config: Config) -> tuple[tuple[int, ...], Preprocessing]:
    testing = evaluation.Testing(config)
    return testing.model_spec.input_shape, testing.preprocessing


@pytest.mark.parametrize(
    ("words", "shape", "stated"),
    [
        ([CLASSES], (3, 24, 32), {}),
        ([GREY], (3, 24, 32), {}),
        (["model.input-shape=[3,8,8]", CLASSES], (3, 8, 8), {}),
        (["data.resize=6", GREY], (3, 6, 6), {}),
        (["data.mean=[0.1]", "data.std=[0.7]", CLASSES], (3, 24, 32), {"mean": (0.1,), "std": (0.7,)}),
        (["data.crop=none", CLASSES], (3, 24, 32), {"resizing": Resizing(interpolation="bicubic")}),
        (["data.interpolation=bilinear", CLASSES], (3, 24, 32), {"resizing": Resizing(crop=0.9)}),
    ],
)
def test_a_stated_key_comes_before_the_weights_record(
    words: list[str], shape: tuple[int, ...], stated: Mapping[str, Any]
) -> None:
    config = with_inputs(load_config("fedavg", ["model.name=mlp", *words]), RECORD)
    resizing = Resizing(crop=0.9, interpolation="bicubic")
    own = {"mean": RECORD.mean, "std": RECORD.std, "resizing": resizing}
    found, about = preprocessing_of(config)
    assert found == shape
    assert {key: getattr(about, key) for key in own} == {**own, **stated}


def test_statistics_in_the_units_of_the_data_come_before_the_weights_record() -> None:
    words = ["model.name=mlp", CLASSES, "data.statistics={mean=[51],std=[102]}"]
    _, about = preprocessing_of(with_inputs(load_config("fedavg", words), RECORD))
    assert (about.mean, about.std, about.resizing) == (
        (0.2,),
        (0.4,),
        Resizing(crop=0.9, interpolation="bicubic"),
    )
    assert with_inputs(load_config("fedavg", ["data.scaling=federated"]), RECORD).data.mean is None


def test_a_record_that_states_nothing_leaves_size_and_figures_to_the_source() -> None:
    shape, about = preprocessing_of(
        with_inputs(load_config("fedavg", ["model.name=mlp", GREY]), InputRecord())
    )
    assert shape == (1, 12, 10)
    assert (about.mean, about.std, about.resizing) == ((0.0,), (1.0,), Resizing())


def test_simulated_devices_get_pictures_of_the_stated_size_and_colours() -> None:
    config = with_inputs(load_config("fedavg", ["model.name=mlp", GREY]), RECORD)
    data = training_data(config)
    assert data.input_shape == (3, 24, 32)
    pictures = np.asarray(data.images)
    assert (pictures[:, 0] == pictures[:, 2]).all()


def test_a_file_that_states_nothing_of_pictures_has_the_tasks_of_before() -> None:
    config = load_config("fedavg", ["model.name=mlp", CLASSES, "model.input-shape=[1,8,8]"])
    _, about = preprocessing_of(config)
    assert "resizing" not in about.model_dump_json()
    assert not {"mean", "std", "crop", "interpolation"} & config.data.model_dump().keys()


def test_the_figures_survive_the_written_file(tmp_path) -> None:
    config = with_inputs(load_config("fedavg", ["model.name=mlp", CLASSES]), RECORD)
    (tmp_path / "federation.toml").write_text(config.to_toml())
    assert load_config(str(tmp_path / "federation.toml")) == config


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["data.mean=[0.5]"], "state as many means as standard deviations"),
        (["data.mean=[0.5]", "data.std=[0.2,0.2]"], "state as many means as standard deviations"),
        (["data.mean=[123.7]", "data.std=[58.4]"], r"\[data\] mean"),
        (["data.mean=[0.5]", "data.std=[0]"], r"\[data\] std"),
        (
            ["data.mean=[0.5]", "data.std=[1]", "data.scaling=federated"],
            'scaled by scaling = "federated": leave',
        ),
        (
            ["data.mean=[0]", "data.std=[1]", "data.statistics={mean=[1],std=[1]}"],
            r"scaled by \[data.statistics\]",
        ),
        (["data.crop=0"], r"\[data\] crop"),
        (["data.crop=most"], r"\[data\] crop"),
        (["data.interpolation=nearest"], r"\[data\] interpolation"),
    ],
)
def test_figures_that_cannot_be_are_refused_with_their_key(words: list[str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        load_config("fedavg", words)


@pytest.mark.parametrize(
    ("shape", "why"),
    [
        ("[4,8,8]", r"\[data\] mean: 3 colours, and 'mlp' takes 4x8x8: state one number for each colour"),
        ("[3,20]", r"\[data\] mean: 3 colours, and 'mlp' takes 3x20: scale .* by \[data.statistics\]"),
    ],
)
def test_figures_of_other_colours_than_the_network_has_are_refused(shape: str, why: str) -> None:
    words = [
        "data.mean=[0.5,0.5,0.5]",
        "data.std=[0.2,0.2,0.2]",
        f"model.input-shape={shape}",
        "model.name=mlp",
    ]
    with pytest.raises(ConfigError, match=why):
        evaluation.Testing(load_config("fedavg", [*words, CLASSES]))


@pytest.mark.parametrize(("key", "changes"), [("augment", "flip"), ("mirror", "up-down")])
def test_only_pictures_are_changed(key: str, changes: str) -> None:
    words = [f'training.{key}=["{changes}"]', "model.name=mlp", "model.input-shape=[20]", CLASSES]
    why = rf"\[training\] {key}: pictures are changed, and 'mlp' takes 20: leave it out"
    with pytest.raises(ConfigError, match=why):
        evaluation.Testing(load_config("fedavg", words))


def test_what_the_network_sees_is_told_in_a_line() -> None:
    testing = evaluation.Testing(with_inputs(load_config("fedavg", ["model.name=mlp", CLASSES]), RECORD))
    assert describe_inputs(testing.model_spec, testing.preprocessing) == (
        "the network sees the middle 90 % of a picture's side as 3x24x32 (bicubic), and pixels of 0 to 1 as "
        "(pixels - [0.5, 0.4, 0.3]) / [0.2, 0.2, 0.1]"
    )
    assert describe_inputs(testing.model_spec, Preprocessing()) == ""


def test_weights_without_a_stated_scale_of_their_inputs_are_warned_of() -> None:
    plain = load_config("fedavg", ["model.from=weights.pth"])
    spec = ModelSpec(name="mlp", input_shape=(3, 8, 8), num_classes=2)
    assert f"state [data] mean and std (those of ImageNet: {OF_IMAGENET})" in describe_unscaled(
        plain, spec, Preprocessing()
    )
    stated = load_config("fedavg", ["data.mean=[0]", "data.std=[1]"])
    assert describe_unscaled(stated, spec, Preprocessing()) == ""
    assert describe_unscaled(plain, spec, Preprocessing(mean=(0.3,))) == ""
    rows = spec.model_copy(update={"input_shape": (4,)})
    assert describe_unscaled(plain, rows, Preprocessing()) == ""


def test_a_network_for_grey_pictures_takes_the_mean_of_the_colours_figures() -> None:
    words = ["model.name=mlp", "model.input-shape=[1,8,8]", CLASSES]
    _, about = preprocessing_of(with_inputs(load_config("fedavg", words), RECORD))
    np.testing.assert_allclose((*about.mean, *about.std), (0.4, 0.5 / 3))


@pytest.mark.parametrize(
    ("stated", "taken"), [("bicubic", "bicubic"), ("lanczos", "bicubic"), (None, "bilinear")]
)
def test_a_filter_that_devices_lack_becomes_the_sharper_of_theirs(stated: str | None, taken: str) -> None:
    record = InputRecord(interpolation=stated)
    assert with_inputs(load_config("fedavg"), record).data.interpolation == taken
