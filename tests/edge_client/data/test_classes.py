"""Mapping a source's own classes to the federation's class list."""

import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from edge_client.agent.local_source import DataChoice, LocalSource
from edge_client.data import classes
from edge_client.data.dataset import LabelledData, make_labelled_data
from edge_client.data.sources import load_source
from edge_client.data.tasks.labels import in_task
from edge_server.config.load import load_config
from edge_server.config.test_data import load_test_data
from schemas.errors import ConfigError
from schemas.values import Preprocessing

TEN = tuple("0123456789")


def given(labels: list[int], names: tuple[str, ...] = ()) -> LabelledData:
    images = np.arange(len(labels), dtype=np.uint8).reshape(-1, 1, 1, 1)
    return make_labelled_data(images, np.array(labels), class_names=names)


def given_named() -> LabelledData:
    return given([0, 1, 0, 1, 0], ("dog", "ant"))


def picture_folder(root: Path, names: tuple[str, ...], count: int = 1) -> Path:
    for name in names:
        (root / name).mkdir(parents=True)
        for number in range(count):
            Image.fromarray(np.full((4, 4), number, np.uint8)).save(root / name / f"{number}.png")
    return root


def test_class_folders_are_matched_by_name_even_if_some_are_missing(tmp_path: Path) -> None:
    data = classes.in_classes(load_source(f"folder:{picture_folder(tmp_path, ('3', '7', '9'), 5)}"), TEN)
    assert data.labels.tolist() == [3] * 5 + [7] * 5 + [9] * 5
    assert data.class_names == TEN == data.preprocessing.class_names


def test_numeric_folder_names_are_sorted_as_numbers(tmp_path: Path) -> None:
    for number in range(5):
        for name in ("10", "9", "2"):
            picture = Image.fromarray(np.full((4, 4), int(name), np.uint8))
            (tmp_path / name).mkdir(exist_ok=True)
            picture.save(tmp_path / name / f"{number}.png")
    data = load_source(f"folder:{tmp_path}")
    assert data.class_names == ("2", "9", "10")
    shown = {(int(image[0, 0, 0]), int(label)) for image, label in zip(data.images, data.labels, strict=True)}
    assert shown == {(2, 0), (9, 1), (10, 2)}


def test_a_folder_in_two_parts_has_the_classes_of_both(tmp_path: Path) -> None:
    picture_folder(tmp_path / "train", ("ant", "bee", "cow"))
    picture_folder(tmp_path / "test", ("bee", "dog"))
    train, test = (load_source(f"folder:{tmp_path}", split=split) for split in ("train", "test"))
    assert train.class_names == test.class_names == ("ant", "bee", "cow", "dog")
    assert test.labels.tolist() == [1, 3]


@pytest.mark.parametrize("key", ["class_names", "label_names"])
def test_an_npz_with_class_names_is_matched_by_name(tmp_path: Path, key: str) -> None:
    images, labels = np.zeros((10, 4, 4), np.uint8), np.arange(10) % 2
    np.savez(tmp_path / "a.npz", images=images, labels=labels, **{key: np.array(["dog", "ant"])})
    data = load_source(f"npz:{tmp_path / 'a.npz'}")
    assert data.named
    assert set(classes.in_classes(data, ("ant", "bee", "dog")).labels) == {2, 0}


def test_a_function_may_return_named_data() -> None:
    data = load_source(f"python:{__name__}:given_named")
    assert data.named
    assert set(classes.in_classes(data, ("ant", "bee", "cow", "dog")).labels) == {3, 0}


def test_labels_without_names_are_indices_into_the_list() -> None:
    data = classes.in_classes(given([0, 2]), ("ant", "bee", "cow"))
    assert data.labels.tolist() == [0, 2]
    assert data.class_names == ("ant", "bee", "cow")
    with pytest.raises(ConfigError, match=r"labels up to 2, but the federation knows 'ant', 'bee' \(2\)"):
        classes.in_classes(given([0, 2]), ("ant", "bee"))


@pytest.mark.parametrize(
    ("numbers", "names", "labels"),
    [
        # As EMNIST's letters, MATLAB and R number classes.
        ([1, 3, 2], ("1", "2", "3"), [0, 2, 1]),
        ([1, 1], ("1",), [0, 0]),
        # As support vector machines do.
        ([-1, 1, 1], ("-1", "1"), [0, 1, 1]),
        ([0, 2], ("0", "1", "2"), [0, 2]),
        # Nothing says that these do not run from 0.
        ([3, 7], tuple("01234567"), [3, 7]),
    ],
)
def test_classes_without_names_are_called_by_their_numbers(numbers, names, labels) -> None:
    data = given(numbers)
    assert (data.class_names, data.labels.tolist(), data.named) == (names, labels, False)
    assert data.numbers.tolist() == numbers
    assert data.own_classes == tuple(map(str, sorted(set(numbers))))


@pytest.mark.parametrize("numbers", [[-1, 0, 1], [-2, 1], [-1, 2]])
def test_other_numbers_below_0_are_refused(numbers: list[int]) -> None:
    with pytest.raises(ConfigError, match="labels are -"):
        given(numbers)


@pytest.mark.parametrize(
    ("numbers", "listed", "labels"),
    [
        # All letters, or those of a device that has only some: the list decides, not the device.
        ([1, 26], [*range(1, 27)], [0, 25]),
        ([5, 9], [*range(1, 27)], [4, 8]),
        ([1, 2], [*range(1, 27)], [0, 1]),
        # A device that lacks class 0.
        ([1, 2], [*range(10)], [1, 2]),
        ([3, 9], [*range(10)], [3, 9]),
        ([1], [0, 1], [1]),
        ([3, 9], [9, 3], [1, 0]),
        ([-1, 1], [-1, 1], [0, 1]),
        ([1, 1], [-1, 1], [1, 1]),
    ],
)
def test_numbers_are_names_in_a_list_of_numbers(numbers, listed, labels) -> None:
    assert classes.in_classes(given(numbers), [str(number) for number in listed]).labels.tolist() == labels


@pytest.mark.parametrize("numbers", [[0, 1, 2], [1, 2], [2]])
def test_numbers_are_places_from_0_in_a_list_of_words(numbers) -> None:
    assert classes.in_classes(given(numbers), ("ant", "bee", "cow")).labels.tolist() == numbers


@pytest.mark.parametrize(
    ("numbers", "names", "why"),
    [
        (
            [0, 1, 2],
            ("1", "2", "3"),
            "the label 0, but the federation knows '1', '2', '3' .3.: labels without",
        ),
        (
            [1, 4],
            ("1", "2", "3"),
            "labels up to 4, but the federation knows '1', '2', '3' .3.: labels without",
        ),
        ([1, 2, 3], ("ant", "bee", "cow"), "labels up to 3, .*labels without names are 0 to 2; add it to"),
        ([-1, 1], ("ant", "bee"), "the label -1, but .*or save the classes' names with the labels"),
    ],
)
def test_a_number_that_is_no_class_of_the_federation_is_refused_with_the_remedy(numbers, names, why) -> None:
    with pytest.raises(ConfigError, match=why):
        classes.in_classes(given(numbers), names)


def numbered_from_one(split: str = "train"):
    return np.zeros((6, 1, 4, 4), np.uint8), np.array([1, 2, 3, 1, 2, 3])


def numbered_source(kind: str, root: Path) -> str:
    """A source of this kind with the labels 1, 2, 3, 1, 2, 3."""
    images, labels = numbered_from_one()
    if kind == "npz":
        np.savez(root / "a.npz", images=images, labels=labels)
    elif kind == "parts":
        np.savez(root / "a.npz", x_train=images, y_train=labels, x_test=images[:2], y_test=labels[:2])
    elif kind == "csv":
        rows = "".join(f"{n},{label}\n" for n, label in enumerate(labels))
        (root / "a.csv").write_text(f"x,label\n{rows}")
    return {
        "npz": f"npz:{root}/a.npz",
        "parts": f"npz:{root}/a.npz",
        "csv": f"csv:{root}/a.csv?label=label",
        "python": f"python:{__name__}:numbered_from_one",
    }[kind]


@pytest.mark.parametrize("kind", ["npz", "parts", "csv", "python"])
def test_labels_from_1_are_as_many_classes_as_there_are(tmp_path: Path, kind: str) -> None:
    source = numbered_source(kind, tmp_path)
    for split in ("train", "test"):
        data = load_source(source, split=split)
        assert data.class_names == data.preprocessing.class_names == ("1", "2", "3")
    assert load_source(source).labels.tolist() == [0, 1, 2, 0, 1, 2]
    assert (
        "labels without names are 1 to 3, so the classes are '1', '2', '3' (3)"
        in classes.remark_on_numbers(data)
    )


def test_whole_numbers_from_1_that_are_regressed_keep_their_values() -> None:
    assert in_task(given([1, 3]), "regression", ()).labels.tolist() == [[1.0], [3.0]]


def test_labels_of_a_task_without_names_keep_their_values() -> None:
    # Examples that are all unusual are not all usual.
    assert in_task(given([1, 1]), "anomaly", ()).labels.tolist() == [1, 1]
    assert in_task(given([1, 2]), "classification", ()).labels.tolist() == [1, 2]


def test_a_part_that_lacks_the_last_classes_has_the_classes_of_both(tmp_path: Path) -> None:
    images = np.zeros((4, 4, 4), np.uint8)
    np.savez(tmp_path / "a.npz", x_train=images, y_train=[0, 1, 2, 3], x_test=images, y_test=[0, 1, 1, 0])
    assert load_source(f"npz:{tmp_path / 'a.npz'}", split="test").num_classes == 4


def test_shipped_digits_have_numbers_and_no_names() -> None:
    assert not load_source("digits").named


def test_directly_constructed_data_has_names() -> None:
    data = LabelledData(np.zeros((1, 1, 2, 2)), np.array([0]), ("bee",), Preprocessing())
    assert classes.in_classes(data, ("ant", "bee")).labels.tolist() == [1]


def test_mapping_twice_changes_nothing() -> None:
    once = classes.in_classes(given([0, 1], ("dog", "ant")), ("ant", "dog"))
    assert classes.in_classes(once, ("ant", "dog")).labels.tolist() == once.labels.tolist() == [1, 0]
    # A subset of the data still has the full list of names.
    assert classes.in_classes(once.subset([1]), ("dog", "cow", "ant")).labels.tolist() == [2]


def test_an_unknown_name_is_refused_with_both_lists() -> None:
    with pytest.raises(ConfigError) as refused:
        classes.in_classes(given([0, 1], ("ant", "wasp")), ("ant", "bee"))
    assert str(refused.value) == (
        "unknown class 'wasp': the federation knows 'ant', 'bee' (2), this data has 'ant', 'wasp' (2); "
        "rename it, or add it to [data] classes"
    )


def test_a_refusal_stays_short_for_many_and_long_names() -> None:
    known = [f"species number {number}" for number in range(900)]
    own = ["x" * 200, *(f"sub-species {number}" for number in range(700))]
    why = classes.misfit(own, known, named=True)
    assert len(why) <= 500
    assert "(900)" in why
    assert "(701)" in why


def test_duplicate_class_names_are_refused() -> None:
    with pytest.raises(ConfigError, match="two classes are called 'ant'"):
        given([0, 1], ("ant", "ant"))


def test_duplicate_class_names_are_refused_with_their_source(tmp_path: Path) -> None:
    arrays = {"images": np.zeros((2, 1, 4, 4), np.uint8), "labels": np.array([0, 1])}
    np.savez(tmp_path / "own.npz", **arrays, class_names=np.array(["ant", "ant"]))
    with pytest.raises(ConfigError, match=r"own\.npz: two classes are called 'ant'"):
        load_source(f"npz:{tmp_path / 'own.npz'}")


def test_names_are_sorted_by_number_if_all_are_numbers() -> None:
    assert classes.in_order(["10", "9", "2", "9"]) == ("2", "9", "10")
    assert classes.in_order(["10", "9", "b", "a"]) == ("10", "9", "a", "b")


def test_a_list_is_completed_with_generated_names() -> None:
    assert classes.complete_names(("ant", "bee"), 4) == ("ant", "bee", "class 2", "class 3")
    # '3' is class 3 of ten, not the first class.
    assert classes.complete_names(("3", "7"), 10) == TEN
    assert classes.complete_names(("3", "12"), 4) == ("3", "12", "class 2", "class 3")
    assert classes.complete_names(("1", "0"), 2) == ("1", "0")


def test_a_list_is_cut_after_a_whole_name() -> None:
    assert classes.shorten_names(("ant", "bee"), 5) == "'ant', ..."
    assert classes.shorten_names(("ant", "bee"), 50) == "'ant', 'bee'"
    assert classes.shorten_names(()) == "none"


def test_mapping_does_not_change_its_input() -> None:
    data = given([0, 1], ("b", "a"))
    before = replace(data)
    classes.in_classes(data, ("a", "b"))
    assert data.labels.tolist() == before.labels.tolist() == [0, 1]
    assert data.class_names == ("b", "a")


def test_numbers_without_examples_between_others_are_said_by_device_and_server(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    np.savez(tmp_path / "a.npz", images=np.zeros((8, 1, 4, 4), np.uint8), labels=[0, 2] * 4)
    source, said = (
        f"npz:{tmp_path / 'a.npz'}",
        "no example has a label of '1' (1), yet each of these is a class",
    )
    with caplog.at_level(logging.INFO, "edge_client"):
        LocalSource(DataChoice(source)).read()
    assert said in caplog.text
    caplog.clear()
    load_test_data(load_config("fedavg", [f"data.source={source}", "data.test-samples=1"]))
    assert f"[data] source: {said}" in caplog.text
    caplog.clear()
    load_test_data(load_config("fedavg", ["data.source=digits", "data.test-samples=1"]))
    assert "no example" not in caplog.text
