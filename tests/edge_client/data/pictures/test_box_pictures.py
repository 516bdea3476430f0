"""Pictures with boxes from the exports of annotation tools."""

import json
import math
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from edge_client.agent.local_source import DataChoice, LocalSource
from edge_client.agent.presence import card_of
from edge_client.data.dataset import LabelledData, make_labelled_data
from edge_client.data.partition import Partition, holdout, partition_indices
from edge_client.data.pictures.box_files import LINE
from edge_client.data.pictures.folders import READERS
from edge_client.data.said_once import say_once
from edge_client.data.shapes import fit_data, letterbox_scale, with_sides
from edge_client.data.sources import load_source
from schemas.errors import ConfigError
from schemas.values import SkippedFiles
from tests.edge_client.data.pictures import box_samples
from tests.edge_client.data.pictures.box_samples import (
    BOXES,
    EXPORTS,
    PARTS,
    source_of,
    write_export,
    write_pictures,
)
from tests.slow import mark_slow

BCCD = Path(__file__).parents[5] / "shared" / "data" / "bccd"
KINDS = list(READERS)
NO_XML = "it is not XML: export it again, in UTF-8"
NO_CORNERS = "it has no name, or no corners: write name, xmin, ymin, xmax and ymax"
NO_BBOX = "it has no known category, or no bbox: write category_id, and bbox as [x, y, width, height]"


def read(kind: str, root: Path, options: str = "", part: str = "") -> LabelledData:
    return load_source(f"{kind}:{source_of(kind, root)}{options}{part}")


@pytest.fixture(params=KINDS)
def exported(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path]:
    say_once.cache_clear()
    write_pictures(request.param, tmp_path)
    return request.param, tmp_path


def test_every_tool_gives_the_same_boxes(exported: tuple[str, Path]) -> None:
    data = read(*exported)
    assert data.class_names == ("cat", "dog")
    assert data.images.shape == (3, 3, 40, 60)
    assert data.labels.shape == (3, 2, 5)
    for own, boxes in zip(data.labels, BOXES.values(), strict=True):
        np.testing.assert_allclose(own[: len(boxes)], np.reshape(boxes, (-1, 5)), atol=1e-4)
        assert (own[len(boxes) :] == (-1, 0, 0, 0, 0)).all()


def test_boxes_shrink_with_their_pictures(exported: tuple[str, Path]) -> None:
    whole, small = read(*exported), read(*exported, "?side=30")
    assert small.images.shape == (3, 3, 20, 30)
    np.testing.assert_allclose(small.labels[:, :, 1:], whole.labels[:, :, 1:] / 2, atol=1e-4)
    with pytest.raises(ConfigError, match="no option 'sides'"):
        read(*exported, "?sides=3")


def test_parts_are_shared_out_by_picture(exported: tuple[str, Path]) -> None:
    assert len(read(*exported, "", "#train")) + len(read(*exported, "", "#test")) == 3


def test_a_broken_picture_is_left_out_and_said(
    exported: tuple[str, Path], caplog: pytest.LogCaptureFixture
) -> None:
    kind, root = exported
    picture = next(root.rglob("b.jpg"))
    picture.write_bytes(picture.read_bytes()[:300])
    data = read(kind, root)
    assert (len(data), data.skipped and data.skipped.files) == (2, 1)
    assert f"1 of 3 files are skipped; the first: cannot read image {picture}" in caplog.text


@pytest.mark.parametrize(
    ("kind", "old", "new", "said"),
    [
        ("yolo", "1 ", "1 x", f"b.txt:1: not all are numbers: {LINE}"),
        ("yolo", "\n", " 7\n", f"b.txt:1: it has 6 numbers: {LINE}"),
        ("yolo", "1 ", "\xe9", "b.txt: it cannot be read as text: save it in UTF-8, readable for this user"),
        ("voc", "<ymin>", "<top>", f"a.xml:2: {NO_XML}"),
        ("voc", "<an", "<?xml version='1.0' encoding='GB2312'?><an", f"b.xml:1: {NO_XML}"),
        ("voc", "<xmin>15</xmin>", "", f"a.xml:3: {NO_CORNERS}"),
        ("coco", "[0, 0,", "[0, null,", f"annotations.json: annotations[2]: {NO_BBOX}"),
        ("coco", "[0, 0,", f"[0, {10**400},", f"annotations.json: annotations[2]: {NO_BBOX}"),
    ],
)
def test_a_fault_in_a_file_of_boxes_costs_its_picture_alone_and_is_said_with_place_and_remedy(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str, old: str, new: str, said: str
) -> None:
    write_pictures(kind, tmp_path)
    (file,) = tmp_path.rglob(said.partition(":")[0])
    file.write_text(file.read_text().replace(old, new), "latin-1")
    local = LocalSource(DataChoice(f"{kind}:{source_of(kind, tmp_path)}")).read()
    assert len(local.train) + len(local.held_out) == 2
    # The device's birth tells the server.
    skipped = card_of(local, source=kind).skipped
    assert skipped == SkippedFiles(files=1, of=3, first=f"{file.parent}/{said}")
    assert f"1 of 3 files are skipped; the first: {file.parent}/{said}\n" in caplog.text


def test_too_many_broken_files_of_boxes_are_refused(tmp_path: Path) -> None:
    write_pictures("yolo", tmp_path)
    for name in "ab":
        (tmp_path / "labels" / f"{name}.txt").write_text("7 0.5 0.5 0.2 0.2")
    said = (
        r"2 of 3 files are broken, more than broken=0\.1 allows: repair or remove them; the first: .*a.txt:1"
        ": the class 7 must be 0 to 1: correct it, or name the class in .*data.yaml"
    )
    with pytest.raises(ConfigError, match=said):
        read("yolo", tmp_path)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("corners", "kept"),
    [
        ((-15, 10, 75, 30), (0, 0, 10, 60, 30)),
        ((30, 10, 30, 30), None),
        ((45, 10, 15, 30), None),
        ((75, 10, 105, 30), None),
        ((math.nan, 10, 45, 30), None),
        ((15, 10, 45, math.inf), None),
    ],
)
def test_boxes_are_cut_at_edges_and_left_out_without_area(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    kind: str,
    corners: tuple[float, ...],
    kept: tuple[int, ...] | None,
) -> None:
    say_once.cache_clear()
    monkeypatch.setitem(BOXES, "b", [(0, *corners), (1, 15, 10, 45, 30)])
    write_pictures(kind, tmp_path)
    found = read(kind, tmp_path).labels[1]
    assert found[-1 if kept else 0].tolist() == pytest.approx((1, 15, 10, 45, 30))
    if kept:
        assert found[0].tolist() == pytest.approx(kept)
    file = {"yolo": "labels/b.txt:1", "voc": "Annotations/b.xml:2"}.get(
        kind, "annotations.json: annotations[2]"
    )
    said = re.findall(r"1 box (left out|cut at)[^;]*; the first: (.*)", caplog.text)
    assert said == [("cut at" if kept else "left out", f"{tmp_path}/{file}")]


def test_a_polygon_is_a_box_by_its_corners(tmp_path: Path) -> None:
    write_pictures("yolo", tmp_path)
    (tmp_path / "labels" / "b.txt").write_text("1 0.1 0.1 0.5 0.2 0.3 0.9")
    assert read("yolo", tmp_path).labels[1, 0].tolist() == pytest.approx((1, 6, 4, 30, 36))


def test_the_first_of_many_boxes_that_are_left_out_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_pictures("yolo", tmp_path)
    (file := tmp_path / "labels" / "b.txt").write_text("0 0.5 0.5 0 0.5\n" * 10)
    read("yolo", tmp_path)
    first = ", ".join(f"{file}:{line}" for line in range(1, 9))
    assert re.search(rf": 10 boxes left out: .*; the first: {first} and 2 more\n", caplog.text)


def test_only_pictures_without_boxes_are_refused(tmp_path: Path) -> None:
    write_pictures("yolo", tmp_path)
    shutil.rmtree(tmp_path / "labels")
    with pytest.raises(ConfigError, match=r"no picture has a box: expected images/NAME.jpg with labels"):
        read("yolo", tmp_path)
    for kind in KINDS:
        with pytest.raises(
            ConfigError, match=f"{kind}:.*missing.*: there is no such file or folder: expected"
        ):
            read(kind, tmp_path / "missing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match=r"yolo:.*empty: there are no pictures with boxes: expected"):
        read("yolo", tmp_path / "empty")


def test_boxes_in_pixels_where_shares_are_expected_are_refused(tmp_path: Path) -> None:
    write_pictures("yolo", tmp_path)
    for name in box_samples.BOXES:
        (tmp_path / "labels" / f"{name}.txt").write_text("0 320 240 40 30\n")
    said = (
        r"all of 3 boxes without area in their pictures.*; the first: .*a\.txt:1: numbers of YOLO are shares"
    )
    with pytest.raises(ConfigError, match=said):
        read("yolo", tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "names: [cat, dog]",
        "nc: 2\nnames: ['cat', \"dog\"]  # animals\ntrain: ../train/images",
        "names:\n  0: cat\n  1: dog\ntrain: x",
        "names:\n- cat\n- dog\n",
        "names: {1: 'dog', 0: cat}",
        "names: [\n  'cat',\n  'dog'\n]",
    ],
)
def test_names_are_read_however_a_tool_writes_them(tmp_path: Path, text: str) -> None:
    write_pictures("yolo", tmp_path)
    (tmp_path / "data.yaml").write_text(text)
    assert read("yolo", tmp_path).class_names == ("cat", "dog")


def test_names_are_in_other_files_or_numbers(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    say_once.cache_clear()
    write_pictures("yolo", tmp_path)
    (tmp_path / "data.yaml").write_text("nc: 2\n")
    with pytest.raises(ConfigError, match=r"data.yaml: it has no list of names: write .* classes.txt"):
        read("yolo", tmp_path)
    (tmp_path / "data.yaml").write_text("names: {0: cat, 2: dog}\n")
    with pytest.raises(ConfigError, match=r"data.yaml: its names are not numbered from 0 in turn"):
        read("yolo", tmp_path)
    (tmp_path / "data.yaml").unlink()
    assert (numbered := read("yolo", tmp_path)).class_names == ("0", "1")
    assert not numbered.named
    assert "no file names the classes, so they are numbers: write their names into classes.txt" in caplog.text
    (tmp_path / "classes.txt").write_text("cat\ndog\n")
    assert read("yolo", tmp_path).class_names == ("cat", "dog")


def test_a_class_number_that_no_model_has_is_a_broken_file(tmp_path: Path) -> None:
    box_samples.pictures_in(tmp_path)
    (tmp_path / "a.txt").write_text("0 0.5 0.5 0.5 0.5\n")
    (tmp_path / "b.txt").write_text("1e9 0.5 0.5 0.5 0.5\n")
    found = read("yolo", tmp_path)
    assert found.class_names == ("0",)
    assert found.skipped is not None
    assert "b.txt:1: the class 1e+09 must be 0 to 99999: number classes from 0" in found.skipped.first


def test_classes_without_names_are_those_of_all_parts(tmp_path: Path) -> None:
    for part, number in (("train", 4), ("test", 1)):
        box_samples.pictures_in(tmp_path / part)
        (tmp_path / part / "a.txt").write_text(f"{number} 0.5 0.5 0.5 0.5\n")
    for split in ("train", "test"):
        assert load_source(f"yolo:{tmp_path}", split=split).num_classes == 5


@pytest.mark.parametrize("inside", [True, False], ids=["train/images", "images/train"])
def test_folders_of_parts_are_official_ones(tmp_path: Path, inside: bool) -> None:
    """As Roboflow and Ultralytics lay them out."""
    (tmp_path / "classes.txt").write_text("cat\ndog\n")
    for part in ("train", "valid", "test"):
        images, labels = (Path(part, end) if inside else Path(end, part) for end in ("images", "labels"))
        box_samples.pictures_in(tmp_path / images)
        (tmp_path / labels).mkdir(parents=True)
        (tmp_path / labels / "a.txt").write_text(box_samples.yolo_lines("a" if part == "test" else "b"))
    train, test = (load_source(f"yolo:{tmp_path}", split=part) for part in ("train", "test"))
    assert [int((part.labels[:, :, 0] >= 0).sum()) for part in (train, test)] == [1, 2]


def test_lists_of_voc_say_which_pictures_are_for_what(tmp_path: Path) -> None:
    write_pictures("voc", tmp_path)
    (lists := tmp_path / "ImageSets" / "Main").mkdir(parents=True)
    (lists / "train.txt").write_text("a\n")
    (lists / "val.txt").write_text("c\n\nb\n")
    train, test = (load_source(f"voc:{tmp_path}", split=part) for part in ("train", "test"))
    assert (len(train), len(test)) == (1, 2)
    assert train.class_names == test.class_names == ("cat", "dog")


def test_groups_of_coco_are_left_out_and_other_files_refused(tmp_path: Path) -> None:
    write_pictures("coco", tmp_path)
    value = box_samples.coco_value()
    value["annotations"][0]["iscrowd"] = 1
    source_of("coco", tmp_path).write_text(json.dumps(value))
    data = read("coco", tmp_path)
    assert (data.class_names, int((data.labels[:, :, 0] >= 0).sum())) == (("dog",), 2)
    value["annotations"][1]["category_id"] = []
    for text in ('{"images": []}', "[" * 100_000, json.dumps(value)):
        source_of("coco", tmp_path).write_text(text)
        with pytest.raises(
            ConfigError, match=r"annotations.json: it is no COCO file: export it again, with images"
        ):
            read("coco", tmp_path)


def test_a_picture_of_coco_may_be_named_twice_and_an_id_only_once(tmp_path: Path) -> None:
    write_pictures("coco", tmp_path)
    value = box_samples.coco_value()
    value["images"] += [{**image, "id": f"again {image['id']}"} for image in value["images"]]
    source_of("coco", tmp_path).write_text(json.dumps(value))
    assert int((read("coco", tmp_path).labels[:, :, 0] >= 0).sum()) == len(value["annotations"])
    value["images"][-1]["id"] = value["images"][0]["id"]
    source_of("coco", tmp_path).write_text(json.dumps(value))
    with pytest.raises(ConfigError, match="two of its images or categories have one id"):
        read("coco", tmp_path)


@pytest.mark.parametrize("first", [[30, 20, 55, 35], [40, 20, 35, 30]], ids=["corners", "a width"])
def test_corners_in_place_of_sides_are_refused(tmp_path: Path, first: list[int]) -> None:
    """Each box reaches beyond its picture, but a width of less than x is no corner."""
    write_pictures("coco", tmp_path)
    value = box_samples.coco_value()
    for each, box in zip(value["annotations"], (first, [25, 10, 50, 38], [20, 5, 45, 30]), strict=True):
        each["bbox"] = box
    source_of("coco", tmp_path).write_text(json.dumps(value))
    if first[2] < first[0]:
        assert read("coco", tmp_path).labels[:, :, 3].max() == 60
        return
    with pytest.raises(
        ConfigError,
        match=r"annotations.json: 3 of 3 boxes reach beyond their pictures.*: write bbox as \[x, y, w",
    ):
        read("coco", tmp_path)


def test_a_box_of_no_image_of_the_file_is_named(tmp_path: Path) -> None:
    write_pictures("coco", tmp_path)
    value = box_samples.coco_value()
    value["annotations"][1]["image_id"] = "1"
    source_of("coco", tmp_path).write_text(json.dumps(value))
    with pytest.raises(ConfigError, match=r"annotations\[1\]: its image_id .*: add the image, or") as raised:
        read("coco", tmp_path)
    assert raised.value.quoted == "1"


def test_pictures_of_several_sizes_keep_their_proportions(tmp_path: Path) -> None:
    """The canvas is the largest; the network's input shows each picture as large as it can."""
    write_pictures("yolo", tmp_path)
    Image.fromarray(np.full((20, 80, 3), 200, np.uint8)).save(tmp_path / "images" / "b.jpg")
    data = read("yolo", tmp_path)
    assert data.images.shape == (3, 3, 40, 80)
    assert (data.images[1, :, 20:] == 0).all()
    np.testing.assert_allclose(data.labels[1, 0], (1, 0, 0, 40, 7.5), atol=1e-4)
    for fitted in (fit_data(data, (3, 64, 64)), with_sides(data, (64, 64))):
        images = np.asarray(fitted.images)
        assert images.shape == (3, 3, 64, 64)
        # 80 x 20 by 0.8, 60 x 40 by 64 / 60.
        assert abs(images[1, :, :16].astype(int) - 200).max() < 9
        assert not images[1, :, 16:].any()
        np.testing.assert_allclose(fitted.labels[1, 0], (1, 0, 0, 32, 6), atol=1e-3)
        np.testing.assert_allclose(fitted.labels[0, 0, 1:], np.multiply((5, 10, 25, 30), 64 / 60), atol=1e-3)
    same = fit_data(data, data.input_shape)
    np.testing.assert_allclose(same.labels[1, 0], data.labels[1, 0])
    assert letterbox_scale((20, 80), (64, 64)) == 0.8


def test_arrays_with_boxes_keep_their_proportions_too() -> None:
    data = make_labelled_data(np.ones((1, 1, 10, 20), np.uint8), np.array([[[0, 2, 4, 6, 8]]], np.float32))
    fitted = fit_data(data, (1, 40, 40))
    assert fitted.labels.tolist() == [[[0, 4, 8, 12, 16]]]
    assert fitted.images[0, 0, :20].all()
    assert not fitted.images[0, 0, 20:].any()


@pytest.mark.parametrize("tool", EXPORTS)
def test_exports_of_tools_are_read(tool: str, tmp_path: Path) -> None:
    data = load_source(write_export(EXPORTS[tool], tmp_path))
    assert (data.class_names, len(data)) == (("cat", "dog"), 2)
    # Each picture has its own boxes.
    pictures = {name: np.asarray(Image.open(tmp_path / "pictures" / f"{name}.jpg")) for name in "ab"}
    for own, image in zip(data.labels, data.images, strict=True):
        (name,) = (name for name, pixels in pictures.items() if (image == pixels.transpose(2, 0, 1)).all())
        wanted = np.reshape(BOXES[name], (-1, 5))
        np.testing.assert_allclose(own[: len(wanted)], wanted, atol=1e-4)
        assert (own[len(wanted) :, 0] == -1).all()


@pytest.mark.parametrize("tool", PARTS)
def test_parts_that_tools_name_are_official_ones(tool: str, tmp_path: Path) -> None:
    source = write_export(PARTS[tool], tmp_path)
    train, test = (load_source(source, split=part) for part in ("train", "test"))
    assert [int((part.labels[:, :, 0] >= 0).sum()) for part in (train, test)] == [1, 2]


def test_a_folder_with_no_or_several_files_of_coco_is_refused(tmp_path: Path) -> None:
    write_pictures("coco", tmp_path)
    (tmp_path / "other.json").write_text("{}")
    for folder, count in ((tmp_path, 2), (tmp_path / "images", 0)):
        with pytest.raises(ConfigError, match=rf"it has {count} JSON files: name one: coco:FILE.json"):
            load_source(f"coco:{folder}")


def test_a_description_in_place_of_its_folder_is_refused(tmp_path: Path) -> None:
    write_pictures("yolo", tmp_path)
    with pytest.raises(
        ConfigError, match=r"data.yaml is a description of pictures.*: name its folder, yolo:"
    ):
        load_source(f"yolo:{tmp_path / 'data.yaml'}")


@mark_slow
@pytest.mark.skipif(not BCCD.is_dir(), reason=f"no data set at {BCCD}")
def test_blood_cells_have_two_boxes_that_are_none(caplog: pytest.LogCaptureFixture) -> None:
    say_once.cache_clear()
    parts = [load_source(f"voc:{BCCD}?side=80", split=part) for part in ("train", "test")]
    assert [len(part) for part in parts] == [292, 72]
    assert sum(int((part.labels[:, :, 0] >= 0).sum()) for part in parts) == 4888 - 2
    assert "2 boxes left out: without area in their pictures, or not finite; the first: " in caplog.text
    shares = partition_indices(parts[0].strata, Partition("dirichlet", 0.5), count=6, seed=0)
    assert sum(map(len, shares)) == 292
    train, held_out = holdout(parts[0], seed=0)
    assert (len(train), len(held_out)) == (234, 58)
    assert set(held_out.strata) == {0, 1, 2}
