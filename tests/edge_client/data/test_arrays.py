"""Arrays: whether examples [N, A, B] are pictures is asked; wide numbers are scaled as in files."""

import logging
from pathlib import Path

import numpy as np
import pytest

from edge_client.cli.main import main
from edge_client.data.local import LocalData
from edge_client.data.said_once import say_once
from edge_client.data.shapes import fit_data, with_sides
from edge_client.data.sources import load_source
from edge_client.inference.onnx_model import load_model
from edge_client.inference.queries import read_image, read_input
from edge_client.inference.service.requests import read_request
from edge_server.config.load import load_config
from edge_server.config.test_data import load_test_data
from schemas.errors import ConfigError, PeerError
from schemas.values import ModelSpec, Preprocessing
from tests.edge_client.agent.session.by_hand import task
from tests.edge_client.data.pictures.test_image_folders import save
from tests.edge_client.inference.test_onnx_model import write_model

OWN = "tests.edge_client.networks:conv1d"
LABELS = np.arange(6) % 2


@pytest.fixture(autouse=True)
def _nothing_said() -> None:
    say_once.cache_clear()


def saved(root: Path, images: np.ndarray) -> str:
    np.savez(root / "a.npz", images=images, labels=LABELS)
    return f"npz:{root / 'a.npz'}"


def shape_of(source: str, *words: str) -> tuple[int, ...]:
    data = load_test_data(load_config("fedavg", [f"data.source={source}", *words]))
    assert data is not None
    return data.input_shape


def test_whether_floats_without_a_channel_axis_are_pictures_is_asked_where_nothing_says_it(
    tmp_path: Path,
) -> None:
    source = saved(tmp_path, np.zeros((6, 3, 40)))
    asked = "for pictures name it npz:PATH.kind=pictures, for signals .kind=signals"
    for name in (OWN, "vit-tiny"):
        with pytest.raises(ConfigError, match=r"\[data\] source: .*a.npz: examples of 3x40 .*" + asked):
            shape_of(source, f"model.name={name}")
    own = f"model.name={OWN}"
    assert shape_of(f"{source}?kind=pictures", own) == (1, 3, 40)
    assert shape_of(f"{source}?kind=signals", own) == (3, 40)
    assert shape_of(source, own, "model.input-shape=[1,3,40]") == (1, 3, 40)
    assert shape_of(source, own, "model.input-shape=[3,40]") == (3, 40)
    assert shape_of(source, "model.name=two-nn") == (1, 3, 40)
    assert shape_of(source, "model.name=cnn-1d") == (3, 40)
    # A device's network comes from the server.
    assert fit_data(load_source(source), (1, 3, 40)).input_shape == (1, 3, 40)
    assert load_source(f"{saved(tmp_path, np.zeros((6, 5, 5)))}?kind=signals").input_shape == (5, 5)


def floats() -> tuple[np.ndarray, np.ndarray]:
    return np.zeros((6, 3, 40)), LABELS


def test_a_function_is_asked_for_the_channel_axis() -> None:
    with pytest.raises(ConfigError, match=r"return them as \[N, 1, 3, 40\], .* input-shape = \[3, 40\]"):
        shape_of(f"python:{__name__}:floats", f"model.name={OWN}")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("kind=picture", "kind=picture must be pictures or signals"),
        ("scal=full", "no option 'scal' .did you mean 'scale'"),
        ("kind=signals&scale=full", "scale= is of pictures: leave out kind=signals, or scale="),
        ("scale=full", "scale= is of pictures, and the examples are"),
    ],
)
def test_options_of_arrays_that_mean_nothing_are_refused(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        load_source(f"{saved(tmp_path, np.zeros((6, 3, 40)))}?{text}")


DEEP = [(np.uint16, "full"), (np.uint16, "min-max"), (np.uint16, "1/4095"), (np.uint8, "min-max")]


@pytest.mark.parametrize(("dtype", "scale"), DEEP)
def test_arrays_and_files_of_the_same_pixels_are_the_same_in_training_infer_and_serve(
    tmp_path: Path, dtype: type, scale: str
) -> None:
    values = np.random.default_rng(0).integers(3, np.iinfo(dtype).max, (6, 7, 9), dtype)
    for number, picture in enumerate(values):
        save(tmp_path / "seen" / str(number % 2) / f"{number}.png", picture)
    files = load_source(f"folder:{tmp_path / 'seen'}?scale={scale}")
    source = saved(tmp_path, values)
    data = load_source(f"{source}?kind=pictures&scale={scale}")
    order = np.argsort(LABELS, kind="stable")
    assert (data.images[order] == files.images).all()
    assert data.preprocessing.model_copy(update={"class_names": ("0", "1")}) == files.preprocessing
    for divisor in (255.0, 1.0):
        about = Preprocessing(scale=divisor, picture_scale=files.preprocessing.picture_scale)
        metadata = {"preprocessing": about.model_dump_json(), "class_names": '["0", "1"]'}
        model = load_model(write_model(tmp_path / "model.onnx", shape=(1, 7, 9), metadata=metadata))
        wanted = read_image(tmp_path / "seen" / "0" / "0.png", (1, 7, 9), about).pixels
        assert (read_input(Path(source), model).images[0] == wanted).all()
        np.save(tmp_path / "one.npy", values[0])
        assert (read_input(tmp_path / "one.npy", model).images[0] == wanted).all()
        assert (read_request((tmp_path / "one.npy").read_bytes(), model).images[0] == wanted).all()


def deep() -> tuple[np.ndarray, np.ndarray]:
    return np.full((6, 8, 8, 3), 32_768, np.uint16), LABELS


def test_a_functions_pictures_of_16_bits_reach_the_network_in_full_range() -> None:
    data = load_source(f"python:{__name__}:deep")
    assert data.input_shape == (3, 8, 8)
    np.testing.assert_allclose(data.inputs(), 0.5, atol=1e-5)
    assert with_sides(data, (4, 4)).input_shape == (3, 4, 4)


def test_signals_and_plain_whole_numbers_stay_as_they_are(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    numbers = np.arange(6 * 32).reshape(6, 4, 8)
    for dtype in (np.int16, np.uint16):
        assert (load_source(saved(tmp_path, numbers.astype(dtype))).inputs() == numbers).all()
    with caplog.at_level(logging.INFO, "edge_client"):
        data = load_source(f"{saved(tmp_path, numbers)}?kind=pictures")
    assert (data.inputs()[:, 0] == numbers).all()
    assert "pixels of int64 are taken as they are; as uint8 or uint16" in caplog.text


def test_wide_numbers_that_nobody_calls_pictures_do_not_become_some(tmp_path: Path) -> None:
    data = load_source(saved(tmp_path, np.zeros((6, 4, 8), np.uint16)))
    assert fit_data(data, (4, 8)).input_shape == (4, 8)
    with pytest.raises(ConfigError, match=r"for pictures name it npz:PATH.kind=pictures"):
        fit_data(data, (1, 4, 8))


def test_arrays_of_another_scale_than_the_federations_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = saved(tmp_path, np.full((6, 8, 8), 4000, np.uint16))
    data = load_source(f"{source}?scale=1/4095")
    about = Preprocessing(class_names=data.class_names)
    model = ModelSpec(name="mlp", input_shape=(1, 8, 8), num_classes=2)
    with pytest.raises(PeerError, match="scale=full, this data has scale=1/4095: state the same behind"):
        LocalData(data, data).check(task(model=model, preprocessing=about))
    with pytest.raises(
        ConfigError, match=r"\[data\] source: the federation takes pictures with scale=min-max"
    ):
        shape_of(source, "data.picture-scale=min-max")
    path = write_model(tmp_path / "model.onnx", shape=(1, 8, 8), metadata={})
    assert main(["infer", str(path), f"{source}?scale=1/4095"]) == 2
    assert "model.onnx takes pictures of scale=full: leave the scale out" in capsys.readouterr().err
