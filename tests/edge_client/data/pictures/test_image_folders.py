"""The source `folder:`: depth, scale, broken files, and what is said; `infer` and `serve` read alike."""

import io
import json
import logging
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from edge_client.agent.local_source import DataChoice, LocalSource
from edge_client.agent.presence import card_of
from edge_client.cli.main import main
from edge_client.data.local import LocalData
from edge_client.data.said_once import say_once
from edge_client.data.shapes import fit_data
from edge_client.data.sources import load_source
from edge_client.inference.onnx_model import load_model
from edge_client.inference.queries import read_image, read_input
from edge_client.inference.service.requests import read_request
from schemas.errors import ConfigError, PeerError, in_full
from schemas.messages import Task
from schemas.values import MIN_MAX, ModelSpec, PictureScale, Preprocessing
from tests.edge_client.agent.session.by_hand import task
from tests.edge_client.data.pictures.picture_samples import DEEP
from tests.edge_client.inference.test_onnx_model import write_model


@pytest.fixture(autouse=True)
def _nothing_said() -> None:
    say_once.cache_clear()


def save(path: Path, values: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(values).save(path)


def depth_folder(root: Path, ending: str = "png", count: int = 10) -> Path:
    """Two classes of 16 bits that differ by brightness alone: 4,000 and 40,000."""
    rng = np.random.default_rng(0)
    for kind, level in (("near", 4000), ("far", 40_000)):
        for number in range(count):
            values = level + rng.integers(0, 500, (8, 8))
            save(root / kind / f"{number}.{ending}", values.astype(np.uint16))
    return root


@pytest.mark.parametrize("ending", ["png", "tif", "pgm"])
def test_classes_that_differ_by_brightness_alone_differ_in_16_bits(tmp_path: Path, ending: str) -> None:
    data = load_source(f"folder:{depth_folder(tmp_path, ending)}")
    means = data.inputs().mean((1, 2, 3))
    assert data.class_names == ("far", "near")
    # 40,250 and 4,250 of 65,535.
    np.testing.assert_allclose(means, np.where(data.labels == 0, 0.6142, 0.0648), atol=0.002)


@pytest.mark.parametrize("name", DEEP)
@pytest.mark.parametrize("shape", [(1, 6, 9), (3, 4, 5), (4, 6, 9)])
def test_training_infer_and_serve_see_the_same_pixels(
    tmp_path: Path, name: str, shape: tuple[int, ...]
) -> None:
    write, _ = DEEP[name]
    (tmp_path / "cat").mkdir()
    write(tmp_path / "cat" / name)
    model = load_model(write_model(tmp_path / "model.onnx", shape=shape, metadata={}))
    trained = fit_data(load_source(f"folder:{tmp_path}"), shape).images
    inferred = read_image(tmp_path / "cat" / name, shape).pixels
    served = read_request((tmp_path / "cat" / name).read_bytes(), model).images
    assert (inferred[None] == served).all()
    # A folder's pictures are opaque.
    np.testing.assert_allclose(trained[:, :3], served[:, :3], rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("options", ["", "?side=30"])
def test_infer_shrinks_large_pictures_as_training_does(tmp_path: Path, options: str) -> None:
    (tmp_path / "cat").mkdir()
    pixels = np.random.default_rng(0).integers(0, 256, (500, 800), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "cat" / "0.png")
    model = load_model(write_model(tmp_path / "model.onnx", shape=(1, 8, 9), metadata={}))
    source = f"folder:{tmp_path}{options}"
    assert (fit_data(load_source(source), (1, 8, 9)).images == read_input(Path(source), model).images).all()


@pytest.mark.parametrize(("text", "scale"), [("min-max", MIN_MAX), ("1/45000", 1 / 45_000)])
def test_the_scale_of_a_folder_travels_with_the_model(tmp_path: Path, text: str, scale: object) -> None:
    data = load_source(f"folder:{depth_folder(tmp_path / 'seen')}?scale={text}")
    assert data.preprocessing.picture_scale == scale
    metadata = {"preprocessing": data.preprocessing.model_dump_json(exclude={"class_names"})}
    model = load_model(write_model(tmp_path / "model.onnx", shape=(1, 8, 8), metadata=metadata))
    assert model.preprocessing.picture_scale == scale
    first = tmp_path / "seen" / "far" / "0.png"
    served = read_request(first.read_bytes(), model).images
    assert (served == data.images[:1]).all()
    assert (read_image(first, (1, 8, 8), model.preprocessing).pixels == data.images[0]).all()


@pytest.mark.parametrize(("own", "common"), [("full", MIN_MAX), ("min-max", None), ("0.3", 0.25)])
def test_a_device_with_pictures_of_another_scale_declines(
    tmp_path: Path, own: str, common: PictureScale | None
) -> None:
    data = load_source(f"folder:{depth_folder(tmp_path, count=1)}?scale={own}")
    model = ModelSpec(name="mlp", input_shape=(1, 8, 8), num_classes=2)

    def asked(scale: PictureScale | None) -> Task:
        about = Preprocessing(class_names=data.class_names, picture_scale=scale)
        return task(model=model, preprocessing=about)

    LocalData(data, data).check(asked(data.preprocessing.picture_scale))
    LocalData(replace(data, resizable=False), data.subset([])).check(asked(data.preprocessing.picture_scale))
    with pytest.raises(PeerError, match=f"the federation takes pictures with scale=.* has scale={own}"):
        LocalData(data, data).check(asked(common))


def test_infer_refuses_a_folder_of_another_scale(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = write_model(tmp_path / "model.onnx", shape=(1, 8, 8), metadata={})
    folder = f"folder:{depth_folder(tmp_path / 'seen')}"
    assert main(["infer", str(model), f"{folder}?scale=full"]) == 0
    assert main(["infer", str(model), f"{folder}?scale=min-max"]) == 2
    assert "model.onnx takes pictures of scale=full: leave the scale out" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("dtype", "level", "scale", "words", "said"),
    [
        (np.uint16, 60_000, "", "have more than 8 bits; .* 0 to 0.92, where 1 is full", logging.INFO),
        (np.uint16, 4095, "", "have more than 8 bits; .* 0 to 0.062, .* another scale=", logging.WARNING),
        (np.uint16, 4095, "?scale=1/4095", "are taken .*=1/4095; .* 0 to 1, where", logging.INFO),
        # A factor for 12 bits makes pictures of 8 bits dark, and without "1/" all of them white.
        (np.uint8, 250, "?scale=1/4095", "are taken .*=1/4095; .* 0 to 0.061, .* another", logging.WARNING),
        (np.uint16, 4095, "?scale=4095", "are taken .*=4095; .* 0 to 1.7e.07, .* another", logging.WARNING),
    ],
)
def test_how_much_of_the_full_range_is_used_is_said_once(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    dtype: type,
    level: int,
    scale: str,
    words: str,
    said: int,
) -> None:
    save(tmp_path / "cat" / "a.png", np.array([[0, level]], dtype))
    with caplog.at_level(logging.INFO, "edge_client"):
        for _ in range(2):
            load_source(f"folder:{tmp_path}{scale}")
    (record,) = caplog.records
    assert record.levelno == said
    assert re.match(f"{re.escape(str(tmp_path))}: 1 of 1 picture {words}", record.message)


def test_deep_and_shallow_pictures_are_one_data_set(tmp_path: Path) -> None:
    save(tmp_path / "cat" / "8.png", np.full((2, 2, 3), 100, np.uint8))
    save(tmp_path / "cat" / "16.png", np.full((2, 2), 100 * 257, np.uint16))
    data = load_source(f"folder:{tmp_path}")
    assert data.images.dtype == np.float32
    assert (data.images == 100).all()


def pictures(root: Path, count: int, *kinds: str) -> Path:
    for kind in kinds or ("cat", "dog"):
        for number in range(count):
            save(root / kind / f"{number}.png", np.full((2, 2), number, np.uint8))
    return root


def test_a_few_broken_files_are_left_out_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (pictures(tmp_path, 10) / "cat" / "3.png").write_bytes(b"half a pic")
    (tmp_path / "dog" / "7.png").write_bytes(b"")
    data = load_source(f"folder:{tmp_path}")
    assert data.skipped is not None
    assert (data.skipped.files, data.skipped.of) == (2, 20)
    assert data.skipped.first.startswith(f"cannot read image {tmp_path / 'cat/3.png'}: it is not an image")
    wanted = [number for skipped in (3, 7) for number in range(10) if number != skipped]
    assert data.images[:, 0, 0, 0].tolist() == wanted
    assert data.labels.tolist() == [0] * 9 + [1] * 9
    first = f"{data.skipped.first}; cannot read image {tmp_path / 'dog/7.png'}"
    assert f"folder:{tmp_path}: 2 of 20 files are skipped; the first: {first}" in caplog.text


@pytest.mark.parametrize(("text", "is_read"), [("", False), ("?broken=0.2", True), ("?broken=0.1", False)])
def test_more_broken_files_than_stated_are_refused(tmp_path: Path, text: str, is_read: bool) -> None:
    for number in range(3):
        (pictures(tmp_path, 10, "cat", "dog") if number == 0 else tmp_path).joinpath(
            "cat", f"{number}.png"
        ).write_bytes(b"")
    if is_read:
        assert len(load_source(f"folder:{tmp_path}{text}")) == 17
        return
    with pytest.raises(
        ConfigError, match=r"3 of 20 files are broken, more than broken=0\.1 allows: .*first: cannot"
    ):
        load_source(f"folder:{tmp_path}{text}")


def test_a_file_that_is_not_there_is_called_that_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        read_image(tmp_path / "none.png", (1, 8, 8))
    assert in_full(caught.value) == f"cannot read image {tmp_path}/none.png: No such file or directory"


def test_a_class_of_broken_files_alone_is_refused_by_name(tmp_path: Path) -> None:
    pictures(tmp_path, 30)
    save(tmp_path / "owl" / "a.png", np.zeros((2, 2), np.uint8))
    (tmp_path / "owl" / "a.png").write_bytes(b"hoot")
    with pytest.raises(ConfigError, match=r"1 file of class 'owl', all broken, the first is .*owl/a\.png"):
        load_source(f"folder:{tmp_path}")


def test_a_class_of_heic_photos_names_the_extra_that_reads_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edge_client.data.pictures.picture_files.find_spec", lambda name: None)
    (pictures(tmp_path, 2, "cat", "dog") / "dog" / "3.HEIC").write_bytes(b"a photo")
    assert len(load_source(f"folder:{tmp_path}")) == 4
    (tmp_path / "owl").mkdir()
    (tmp_path / "owl" / "1.HEIC").write_bytes(b"a photo")
    with pytest.raises(
        ConfigError, match=r"class 'owl' has no file .*: 1 \.heic .*'edge-federation\[heif\]'"
    ):
        load_source(f"folder:{tmp_path}")


def test_a_class_of_recordings_names_the_source_that_reads_them(tmp_path: Path) -> None:
    (pictures(tmp_path, 2, "cat", "dog") / "owl").mkdir()
    (tmp_path / "owl" / "hoot.wav").write_bytes(b"RIFF")
    with pytest.raises(
        ConfigError, match=r"class 'owl' has no file .*: 1 \.wav \(wav:FOLDER reads recordings"
    ):
        load_source(f"folder:{tmp_path}")


def test_new_pictures_are_used_while_a_broken_one_lies_there(tmp_path: Path) -> None:
    (pictures(tmp_path, 10) / "cat" / "3.png").write_bytes(b"")
    source = LocalSource(DataChoice(f"folder:{tmp_path}?broken=0.2"))
    before = source.read()
    card = card_of(before, source="folder")
    assert card.skipped is not None
    assert card.skipped.files == 1
    save(tmp_path / "cat" / "new.png", np.full((2, 2), 255, np.uint8))
    after = source.reload_if_changed()
    assert after is not None
    assert len(after.train) + len(after.held_out) == len(before.train) + len(before.held_out) + 1 == 20


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ("scale=most", "scale=most must be full, min-max, or a positive factor"),
        ("broken=2", "broken=2 must be a number from 0 to 1"),
        ("broken=few", "broken=few must be a number"),
        ("scales=full", "no option 'scales'"),
    ],
)
def test_wrong_options_are_refused_with_the_remedy(tmp_path: Path, options: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        load_source(f"folder:{pictures(tmp_path, 1)}?{options}")


@pytest.mark.parametrize("name", ["what?", "who?scale=me", "plain"])
@pytest.mark.parametrize("options", ["", "?broken=0.5"])
def test_a_question_mark_in_a_folders_own_name_begins_no_options(
    tmp_path: Path, name: str, options: str
) -> None:
    pictures(tmp_path / name, 2)
    assert len(load_source(f"folder:{name}{options}", data_root=tmp_path)) == 4


def test_a_huge_picture_is_a_broken_file(tmp_path: Path) -> None:
    Image.new("1", (7000, 7000)).save(pictures(tmp_path, 10) / "cat" / "huge.png")
    skipped = load_source(f"folder:{tmp_path}").skipped
    assert skipped is not None
    assert "7000x7000 pixels are more than 40 million" in skipped.first


@pytest.mark.parametrize(
    ("size", "options", "shape"),
    [
        ((4032, 3024), "", (3, 480, 640)),
        ((640, 480), "", (3, 480, 640)),
        ((1000, 2), "?side=100", (3, 1, 100)),
        ((900, 1200), "?side=1200", (3, 1200, 900)),
    ],
)
def test_photos_of_a_phone_are_held_in_a_size_that_fits_into_memory(
    tmp_path: Path,
    size: tuple[int, int],
    options: str,
    shape: tuple[int, ...],
    caplog: pytest.LogCaptureFixture,
) -> None:
    for kind in ("cat", "dog"):
        (tmp_path / kind).mkdir()
        Image.new("RGB", size, (200, 100, 50)).save(tmp_path / kind / "0.png")
    with caplog.at_level(logging.INFO, "edge_client"):
        data = load_source(f"folder:{tmp_path}{options}")
    assert data.input_shape == shape
    assert (data.images == np.array([200, 100, 50])[:, None, None]).all()
    assert ("2 of 2 pictures shrunk to" in caplog.text) == (max(size) != max(shape))


def test_other_kinds_of_files_and_frames_are_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    pictures(tmp_path, 2, "cat")
    (tmp_path / "cat" / "notes.txt").write_text("of today")
    first, second = Image.new("L", (2, 2), 9), Image.new("L", (2, 2), 200)
    first.save(tmp_path / "cat" / "film.gif", save_all=True, append_images=[second])
    with caplog.at_level(logging.INFO, "edge_client"):
        data = load_source(f"folder:{tmp_path}")
    assert caplog.messages == [
        f"{tmp_path}: files of another kind are left out: 1 .txt",
        f"{tmp_path}: 1 of 3 pictures taken as the first of several in their file",
    ]
    assert len(data) == 3


def test_infer_leaves_broken_files_out_and_says_what_it_does_not_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    model = write_model(tmp_path / "model.onnx")
    seen = pictures(tmp_path / "seen" / "val", 6, "ant", "cat").parent
    pictures(seen / "train", 1, "ant")
    (seen / "val" / "ant" / "._0.png").write_bytes(b"")
    (seen / "val" / "ant" / "5.png").write_bytes(b"")
    (seen / "val" / "cat" / "a.docx").write_bytes(b"")
    assert main(["infer", str(model), str(seen), "--format", "json"]) == 0
    captured = capsys.readouterr()
    assert len(json.loads(captured.out)["results"]) == 11
    assert f"{seen / 'val'}: files of another kind are left out: 1 .docx" in captured.err
    assert "1 of 12 files are skipped" in caplog.text


def test_a_request_may_be_of_any_depth_and_says_what_is_unexpected(tmp_path: Path) -> None:
    model = load_model(write_model(tmp_path / "model.onnx", shape=(1, 2, 2)))
    stream = io.BytesIO()
    first, second = Image.new("L", (2, 2), 9), Image.new("L", (2, 2), 200)
    first.save(stream, "GIF", save_all=True, append_images=[second])
    assert read_request(stream.getvalue(), model).notes == ("taken as the first of several in their file",)


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "L"])
def test_transparent_parts_are_said_once_where_the_network_does_not_take_them(
    tmp_path: Path, mode: str, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, clear in enumerate((True, False)):
        picture = Image.new("RGBA", (4, 4), (9, 9, 9, 0 if clear else 255)).convert(mode)
        more = {"transparency": 0 if mode == "P" else 9} if clear and mode in "PL" else {}
        (tmp_path / "seen" / "cat").mkdir(parents=True, exist_ok=True)
        if mode == "P":
            picture = Image.new("P", (4, 4), 0)
            picture.putpalette([9, 9, 9])
        picture.save(tmp_path / "seen" / "cat" / f"{number}.png", **more)
    with caplog.at_level(logging.INFO):
        load_source(f"folder:{tmp_path / 'seen'}")
    said = "1 of 2 pictures with transparent parts, which get the colours stored for them"
    assert said in caplog.text
    for channels in (3, 4):
        model = write_model(tmp_path / "model.onnx", shape=(channels, 4, 4), metadata={})
        assert main(["infer", str(model), str(tmp_path / "seen")]) == 0
        assert (said in capsys.readouterr().err) is (channels == 3)
