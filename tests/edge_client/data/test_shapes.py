"""Data keeps its shape until the network is known, and is then converted or refused with both shapes."""

import json
import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from edge_client.cli.main import main
from edge_client.data import shapes
from edge_client.data.arrays import as_batch
from edge_client.data.dataset import make_labelled_data
from edge_client.data.local import LocalData
from edge_client.data.said_once import say_once
from edge_client.data.shapes import fit_data, redrawn, say_other_scale, shape_misfit, with_sides
from edge_client.data.sources import load_source
from edge_client.inference.onnx_model import load_model
from edge_client.inference.queries import read_image
from edge_client.system.hardware.memory import Memory
from edge_server.config.load import load_config
from edge_server.config.test_data import load_test_data, model_spec
from edge_server.simulation.inputs import training_data
from edge_server.simulation.simulator import simulate
from schemas.errors import ConfigError, PeerError
from schemas.values import Interpolation, ModelSpec, Preprocessing, Resizing
from tests.edge_client.agent.session.by_hand import task
from tests.edge_client.inference.test_onnx_model import write_model
from tests.edge_server.simulation.in_process import in_process
from tests.edge_server.simulation.small import Quiet


def signals() -> tuple[np.ndarray, np.ndarray]:
    """Two channels with eight time steps; rising signals are class 1."""
    labels = np.arange(60) % 2
    return (np.linspace(-1, 1, 8) * (2 * labels - 1)[:, None, None] * np.ones((1, 2, 1))).astype(
        np.float32
    ), labels


@pytest.mark.parametrize(
    ("dtype", "given", "kept"),
    [
        (np.float32, (6, 2, 8), (2, 8)),
        (np.int16, (6, 2, 8), (2, 8)),
        (np.uint8, (6, 8, 8), (1, 8, 8)),
        (np.float32, (6, 8, 8), (1, 8, 8)),
        (np.uint16, (6, 8, 8), (1, 8, 8)),
        (np.float32, (6, 5), (5,)),
        (np.float32, (6, 8, 8, 3), (3, 8, 8)),
        (np.float32, (6, 1, 8, 8), (1, 8, 8)),
    ],
)
def test_arrays_keep_their_shape_except_grey_pictures_and_trailing_channels(
    tmp_path: Path, dtype: type, given: tuple[int, ...], kept: tuple[int, ...]
) -> None:
    np.savez(tmp_path / "a.npz", images=np.zeros(given, dtype), labels=np.arange(6) % 2)
    assert load_source(f"npz:{tmp_path / 'a.npz'}").input_shape == kept


def test_pictures_are_resized_to_a_side_by_the_mean_of_their_pixels() -> None:
    # 4x2 pixels as 1x1: the filter weighs rows 1, 3, 3, 1 and columns evenly: (0 + 240 + 480 + 240) / 8.
    rows = np.array([0, 80, 160, 240], np.uint8)
    grey = make_labelled_data(np.repeat(rows, 2).reshape(1, 1, 4, 2), np.array([0]))
    assert np.asarray(with_sides(grey, (1, 1)).images).tolist() == [[[[120]]]]
    coloured = make_labelled_data(np.full((2, 3, 8, 6), 7, np.uint8), np.array([0, 1]))
    resized = with_sides(coloured, (4, 4))
    assert resized.input_shape == (3, 4, 4)
    assert (np.asarray(resized.images) == 7).all()
    assert (resized.labels == coloured.labels).all()


def test_a_side_resizes_the_pictures_that_are_read_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    pictures = np.random.default_rng(0).integers(0, 256, (50, 3, 8, 6), dtype=np.uint8)
    data = make_labelled_data(pictures, np.arange(50) % 2)
    resized, made = with_sides(data, (4, 4)), list[int]()
    whole = np.asarray(resized.images)
    assert whole.shape == resized.images.shape == (50, 3, 4, 4)
    redraw = shapes._all_redrawn
    monkeypatch.setattr(shapes, "_all_redrawn", lambda d, *more: made.append(len(d)) or redraw(d, *more))
    assert (resized.subset([7, 3]).images == whole[[7, 3]]).all()
    twice = fit_data(replace(resized, resizable=True), (1, 6, 6), lazily=True).subset([7])
    assert (twice.images == fit_data(replace(resized.subset([7]), resizable=True), (1, 6, 6)).images).all()
    assert max(made) == 2


@pytest.mark.parametrize(
    ("shape", "dtype"), [((2, 2, 8), np.uint8), ((2, 1, 8, 8), np.float32), ((2, 5, 8, 8), np.uint8)]
)
def test_only_pictures_of_bytes_are_resized_to_a_side(shape: tuple[int, ...], dtype: type) -> None:
    data = make_labelled_data(np.zeros(shape, dtype), np.array([0, 1]))
    with pytest.raises(ConfigError, match="only pictures of bytes"):
        with_sides(data, (4, 4))


def test_the_server_and_simulated_devices_resize_their_data(tmp_path: Path) -> None:
    config = load_config("fedavg", ["data.source=digits", "data.resize=4", "model.name=mlp"])
    test_data = load_test_data(config)
    assert test_data is not None
    assert test_data.input_shape == training_data(config).input_shape == (1, 4, 4)
    assert model_spec(config, test_data).input_shape == (1, 4, 4)
    wide = load_test_data(load_config("fedavg", ["data.source=digits", "data.resize=[4, 6]"]))
    assert wide is not None
    assert wide.input_shape == (1, 4, 6)
    np.savez(tmp_path / "a.npz", images=np.zeros((6, 2, 8), np.float32), labels=np.arange(6) % 2)
    with pytest.raises(ConfigError, match=r"\[data\] resize: only pictures of bytes"):
        load_test_data(load_config("fedavg", [f"data.source=npz:{tmp_path / 'a.npz'}", "data.resize=4"]))


def test_only_a_channel_axis_of_one_is_added_or_removed(caplog: pytest.LogCaptureFixture) -> None:
    grey = make_labelled_data(np.arange(12, dtype=np.float32).reshape(2, 2, 3), np.array([0, 1]))
    with caplog.at_level(logging.INFO, "edge_client"):
        fits = [
            fit_data(grey, (1, 2, 3)),
            fit_data(grey, (1, 2, 3)),
            fit_data(fit_data(grey, (1, 2, 3)), (2, 3)),
        ]
    assert [data.input_shape for data in fits] == [(1, 2, 3), (1, 2, 3), (2, 3)]
    assert (fits[2].images == grey.images).all()
    lines = [line for line in caplog.messages if "is taken as 1x2x3" in line]
    assert lines == ["the data, 2x3, is taken as 1x2x3, which the model takes"]
    for shape in ((3, 2), (2, 3, 1), (1, 1, 2, 3), (6,)):
        with pytest.raises(ConfigError, match=r"the model takes .*, the data is 2x3"):
            fit_data(grey, shape)
    assert fit_data(grey.subset([]), (9, 9)).input_shape == (2, 3)


def test_photographs_are_converted_to_the_networks_size_and_colours_as_infer_does(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for number in range(3):
        (tmp_path / "cat").mkdir(exist_ok=True)
        pixels = rng.integers(0, 255, (20, 30, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "cat" / f"{number}.png")
    data = load_source(f"folder:{tmp_path}")
    assert data.input_shape == (3, 20, 30)
    for shape in ((1, 8, 8), (3, 12, 10)):
        read = [read_image(path, shape).pixels for path in sorted((tmp_path / "cat").iterdir())]
        assert (fit_data(data, shape).images == np.stack(read)).all()
    assert "the model takes 2x8x8, the data is 3x20x30" in shape_misfit(data, (2, 8, 8))


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_the_middle_of_a_picture_is_what_resizing_and_cutting_leave(interpolation: Interpolation) -> None:
    # Half of the largest square of 40x64 pixels is 20x20: half the picture's size, and its middle 10x10.
    pixels = np.random.default_rng(0).integers(0, 256, (3, 40, 64), dtype=np.uint8)
    by = Image.Resampling[interpolation.upper()]
    halved = np.asarray(Image.fromarray(pixels.transpose(1, 2, 0)).resize((32, 20), by)).transpose(2, 0, 1)
    how = Resizing(crop=0.5, interpolation=interpolation)
    assert (redrawn(pixels, (3, 10, 10), how) == halved[:, 5:15, 11:21]).all()
    deep = redrawn(pixels.astype(np.float32), (3, 10, 10), how)
    np.testing.assert_allclose(deep.clip(0, 255), halved[:, 5:15, 11:21], atol=1.5)


def test_the_middle_keeps_a_pictures_proportions_although_others_have_another_size(tmp_path: Path) -> None:
    """A square in the middle of a wide picture, and of high ones that most are: it stays a square."""
    (tmp_path / "cat").mkdir()
    for number, (width, height) in enumerate([(60, 40), (40, 60), (40, 60)]):
        pixels = np.zeros((height, width), np.uint8)
        pixels[height // 2 - 10 : height // 2 + 10, width // 2 - 10 : width // 2 + 10] = 255
        Image.fromarray(pixels).save(tmp_path / "cat" / f"{number}.png")
    data = load_source(f"folder:{tmp_path}")
    common = Preprocessing(resizing=Resizing(crop=1.0))
    expected = np.zeros((8, 8))
    expected[2:6, 2:6] = 255
    for taken in (fit_data(data, (1, 8, 8), common), fit_data(data.subset([0]), (1, 8, 8), common)):
        assert taken.sizes is None
        for pixels in taken.images:
            assert np.abs(pixels[0] - expected).mean() < 20
    stretched = fit_data(data, (1, 8, 8), Preprocessing()).images[0, 0]
    assert np.abs(stretched - expected).mean() > 20
    # The size of most is the network's, and a picture of another one is cut out of what it was stretched to.
    same = fit_data(data, (1, 60, 40), common).images
    assert (same[1:] == data.images[1:]).all()
    assert (same[0] != data.images[0]).any()


@pytest.mark.parametrize("size", [(7, 7), (7, 50), (50, 7), (3, 11)])
def test_no_rounding_takes_the_part_out_of_the_picture(size: tuple[int, int]) -> None:
    for crop in (1.0, 0.875, 0.1):
        assert redrawn(np.zeros((1, *size), np.uint8), (3, 5, 9), Resizing(crop=crop)).shape == (3, 5, 9)


def test_a_picture_of_the_networks_size_is_not_cut() -> None:
    pixels = np.arange(16, dtype=np.uint8).reshape(1, 4, 4)
    assert (redrawn(pixels, (3, 4, 4), Resizing(crop=0.5)) == pixels).all()


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_arrays_of_pictures_are_resized_where_the_federation_says_how(dtype: type) -> None:
    data = make_labelled_data(np.full((2, 1, 6, 8), 9, dtype), np.array([0, 1]))
    common = Preprocessing(resizing=Resizing())
    taken = fit_data(data, (3, 4, 4), common)
    assert (taken.images.dtype, taken.input_shape) == (dtype, (3, 4, 4))
    assert (taken.images == 9).all()
    for shape, about in (
        ((3, 6, 8), Preprocessing()),
        ((1, 4, 4), None),
        ((48,), common),
        ((2, 6, 8), common),
    ):
        with pytest.raises(ConfigError, match=r"the model takes .*, the data is 1x6x8"):
            fit_data(data, shape, about)
    assert "with [data] interpolation in the federation file" in shape_misfit(data, (3, 4, 4))
    signals = make_labelled_data(np.zeros((2, 3, 8), dtype), np.array([0, 1]))
    assert shape_misfit(signals, (3, 4, 4), common) == "the model takes 3x4x4, the data is 3x8"


def test_pictures_that_the_memory_does_not_hold_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    data = make_labelled_data(np.zeros((2, 1, 6, 8), np.uint8), np.array([0, 1]))
    monkeypatch.setattr(shapes, "memory", lambda: Memory(None, None, None, free=2 * 3 * 64 * 64 - 1))
    with pytest.raises(ConfigError, match=r"2 pictures of 3x64x64 take 0\.0 GiB of memory, and 0\.0 GiB are"):
        fit_data(data, (3, 64, 64), Preprocessing(resizing=Resizing()))
    spec = ModelSpec(name="mlp", input_shape=(3, 64, 64), num_classes=2)
    asked = task(model=spec, preprocessing=Preprocessing(resizing=Resizing()))
    with pytest.raises(PeerError, match="give fewer examples"):
        LocalData(data, data).as_the_server_says(asked)


def test_grey_arrays_get_three_equal_colours_for_a_network_of_colours(
    caplog: pytest.LogCaptureFixture,
) -> None:
    data = make_labelled_data(np.arange(32, dtype=np.uint8).reshape(2, 1, 4, 4), np.array([0, 1]))
    with caplog.at_level(logging.INFO, "edge_client"):
        coloured = fit_data(data, (3, 4, 4), Preprocessing(resizing=Resizing()))
    assert (coloured.images == data.images).all()
    assert coloured.input_shape == (3, 4, 4)
    assert "the data, 1x4x4, is taken as 3x4x4" in caplog.text


def test_that_square_floats_are_taken_for_pictures_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    np.savez(tmp_path / "a.npz", images=np.zeros((6, 12, 12)), labels=np.arange(6) % 2)
    with caplog.at_level(logging.INFO, "edge_client"):
        for _ in range(2):
            load_source(f"npz:{tmp_path / 'a.npz'}")
    assert caplog.messages == [
        f"{tmp_path / 'a.npz'}: examples of 12x12 are taken for grey pictures; for signals state "
        "?kind=signals or [model] input-shape = [12, 12]"
    ]


def test_square_signals_fit_a_network_that_states_their_shape(tmp_path: Path) -> None:
    signals = np.random.default_rng(0).random((6, 4, 4), np.float32)
    np.savez(tmp_path / "a.npz", images=signals, labels=np.arange(6) % 2)
    assert (fit_data(load_source(f"npz:{tmp_path / 'a.npz'}"), (4, 4)).images == signals).all()
    assert (as_batch(signals, (4, 4)) == signals).all()


def test_floats_without_a_channel_axis_are_grey_pictures_for_an_image_network(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", images=np.zeros((6, 8, 9), np.float32), labels=np.arange(6) % 2)
    for name, shape in (("two-nn", (1, 8, 9)), ("mlp", (8, 9))):
        config = load_config("fedavg", [f"data.source=npz:{tmp_path / 'a.npz'}", f"model.name={name}"])
        data = load_test_data(config)
        assert data is not None
        assert data.input_shape == model_spec(config, data).input_shape == shape


@pytest.mark.parametrize("given", [(2, 8), (5, 2, 8), (1, 2, 8)])
def test_signals_may_be_single_or_batched(given: tuple[int, ...]) -> None:
    assert as_batch(np.zeros(given, np.float32), (2, 8)).shape == (given[0] if len(given) == 3 else 1, 2, 8)
    assert as_batch(np.zeros(given, np.uint8), (2, 8)).shape == (given[0] if len(given) == 3 else 1, 2, 8)


def test_a_signal_network_is_trained_and_used_through_npz(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    images, labels = signals()
    np.savez(tmp_path / "signals.npz", images=images, labels=labels)
    words = ["num-clients=2", "rounds=2", "local-epochs=4", "learning-rate=0.1", "workers=1", "batch-size=8"]
    words += ["tiers.ratios=[0.0]", "model.name=tests.edge_client.networks:conv1d"]
    config = load_config("fedavg", [f"data.source=npz:{tmp_path / 'signals.npz'}?kind=signals", *words])
    with in_process():
        simulate(config, out=tmp_path / "run", watcher=Quiet())
    model = tmp_path / "run" / "onnx" / "tier-1.onnx"
    assert load_model(model).input_shape == (2, 8)
    capsys.readouterr()
    assert main(["infer", str(model), str(tmp_path / "signals.npz")]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "accuracy 100.00% on 60 labelled examples"
    np.save(tmp_path / "one.npy", images[0])
    assert main(["infer", str(model), str(tmp_path / "one.npy"), "--format", "json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["results"]) == 1


# --- inputs of `infer` ---
def picture(path: Path, place: int, *, size: tuple[int, int] = (3, 1)) -> None:
    """Save a picture whose brightest pixel is the class that the model of `write_model` predicts."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.zeros((1, 3), np.uint8)
    pixels[0, place] = 200
    Image.fromarray(pixels).resize(size, Image.Resampling.NEAREST).save(path)


def test_infer_accepts_a_folder_of_classes_and_reports_accuracy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = write_model(tmp_path / "model.onnx")
    picture(tmp_path / "seen" / "ant" / "a.png", 0, size=(9, 3))
    picture(tmp_path / "seen" / "cat" / "b.png", 2)
    picture(tmp_path / "seen" / "cat" / "c.png", 1)
    assert main(["infer", str(model), str(tmp_path / "seen")]) == 0
    captured = capsys.readouterr()
    assert captured.out.splitlines()[-1] == "accuracy 66.67% on 3 labelled images"
    assert captured.err == f"note: {tmp_path / 'seen'}: 1 of 3 pictures resized from 9x3 to 3x1\n"


def test_infer_accepts_a_folder_of_pictures_without_classes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = write_model(tmp_path / "model.onnx")
    picture(tmp_path / "seen" / "a.png", 1)
    picture(tmp_path / "seen" / "of today" / "b.png", 2)
    assert main(["infer", str(model), str(tmp_path / "seen"), "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [answer["top"][0]["name"] for answer in document["results"]] == ["bee", "cat"]
    assert document["accuracy"] is None
    (tmp_path / "none").mkdir()
    assert main(["infer", str(model), str(tmp_path / "none")]) == 2
    assert "there are no images in" in capsys.readouterr().err


def test_infer_accepts_the_shipped_digits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = write_model(tmp_path / "model.onnx", shape=(1, 8, 8), metadata={})
    assert main(["infer", str(model), "digits"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("on 359 labelled images")


@pytest.mark.parametrize(
    ("pixels", "common", "said"),
    [
        (np.linspace(0, 1, 8, dtype=np.float32), Preprocessing(), True),
        (np.linspace(0, 255, 8).astype(np.uint8), Preprocessing(scale=1.0), True),
        (np.linspace(0, 255, 8, dtype=np.float32), Preprocessing(), False),
        (
            np.linspace(0, 255, 8).astype(np.uint8),
            Preprocessing(scale=1.0, mean=(120.0,), std=(60.0,)),
            False,
        ),
        (np.linspace(0, 1, 8, dtype=np.float32), Preprocessing(scale=1.0), False),
        (np.linspace(0, 255, 8, dtype=np.float32), Preprocessing(scale=1.0), False),
        (np.linspace(0, 255, 8, dtype=np.float32), Preprocessing(scale=1.0, resizing=Resizing()), True),
        (np.linspace(0, 1, 8, dtype=np.float32), Preprocessing(scale=1.0, resizing=Resizing()), False),
    ],
)
def test_numbers_of_another_range_than_the_models_are_said(
    pixels: np.ndarray, common: Preprocessing, said: bool, caplog: pytest.LogCaptureFixture
) -> None:
    say_once.cache_clear()
    data = make_labelled_data(pixels.reshape(2, 1, 2, 2), np.arange(2))
    say_other_scale(data, common)
    assert ("save them in the range of the other data" in caplog.text) is said
