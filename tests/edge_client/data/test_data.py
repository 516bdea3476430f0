"""Sources, array layouts and preprocessing."""

import logging
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from edge_client.data.arrays import channels_first
from edge_client.data.dataset import LabelledData, Pixels, make_labelled_data, preprocess
from edge_client.data.source_options import split_off
from edge_client.data.sources import SOURCES, load_source, part_of
from edge_client.data.tables.kinds import TABLES
from schemas.errors import ConfigError
from schemas.values import Preprocessing

DATA_ROOT = Path(__file__).parents[4] / "shared" / "data"
needs_data = pytest.mark.skipif(not DATA_ROOT.is_dir(), reason=f"no data sets at {DATA_ROOT}")


def given_examples() -> tuple[np.ndarray, list[int]]:
    return np.zeros((10, 4, 4), np.uint8), [0, 1] * 5


def given_data() -> LabelledData:
    return make_labelled_data(np.zeros((5, 1, 2, 2), np.uint8), np.arange(5))


def given_below(data_root: Path | None) -> tuple[np.ndarray, np.ndarray]:
    if data_root is None:
        raise ConfigError("nothing without a root")
    return np.zeros((4, 1, 2, 2), np.float32), np.load(data_root / "labels.npy")


def given_by_split(split: str) -> tuple[np.ndarray, list[int]]:
    return np.zeros((7 if split == "train" else 3, 4, 4), np.uint8), [0] * (7 if split == "train" else 3)


def given_nonsense() -> int:
    return 3


def fails() -> None:
    raise RuntimeError("sensor unplugged")


def test_digits_have_a_training_and_a_test_part() -> None:
    train, test = load_source("digits"), load_source("digits", split="test")
    assert (len(train), len(test)) == (1438, 359)
    assert train.input_shape == (1, 8, 8)
    assert train.images.dtype == np.uint8
    assert train.images.max() == 16
    assert train.class_names == tuple("0123456789") == train.preprocessing.class_names
    # 1,797 images, 174 to 183 of each digit: a fifth of each is 34 to 37.
    assert set(np.bincount(test.labels)) <= {34, 35, 36, 37}


def test_digits_inputs_are_standardised() -> None:
    inputs = load_source("digits").inputs()
    assert inputs.dtype == np.float32
    assert abs(float(inputs.mean())) < 0.02
    assert abs(float(inputs.std()) - 1) < 0.02


def test_preprocess_by_hand() -> None:
    # (255/255 - 0.5)/0.25 = 2, (0/255 - 0.5)/0.25 = -2; with mean 1 and deviation 2: 0 and -0.5.
    images = np.array([[[[255, 0]], [[255, 0]]]], np.uint8)
    inputs = preprocess(images, Preprocessing(mean=(0.5, 1.0), std=(0.25, 2.0)))
    np.testing.assert_allclose(inputs, [[[[2, -2]], [[0, -0.5]]]])
    with pytest.raises(ConfigError, match="3 values for mean, images have 2 channels"):
        preprocess(images, Preprocessing(mean=(0.5, 0.5, 0.5)))


def test_preprocess_does_not_change_its_input() -> None:
    images = np.full((1, 1, 2, 2), 4.0, np.float32)
    preprocess(images, Preprocessing(scale=2.0))
    assert (images == 4).all()


@pytest.mark.parametrize(
    ("given", "expected"),
    [((5, 8, 8), (5, 1, 8, 8)), ((5, 8, 9, 3), (5, 3, 8, 9)), ((5, 3, 8, 9), (5, 3, 8, 9)), ((5, 7), (5, 7))],
)
def test_channels_come_first(given: tuple[int, ...], expected: tuple[int, ...]) -> None:
    assert channels_first(np.zeros(given, np.uint8)).shape == expected


def test_labels_must_fit_their_classes() -> None:
    with pytest.raises(ConfigError, match="labels are 0 to 2, 2 classes need 0 to 1"):
        make_labelled_data(np.zeros((3, 1, 2, 2)), np.arange(3), class_names=("a", "b"))
    with pytest.raises(ConfigError, match="are not"):
        make_labelled_data(np.zeros((3, 1, 2, 2)), np.arange(4))


def test_empty_data_is_accepted() -> None:
    empty = load_source("digits").subset([])
    assert len(empty) == 0
    assert empty.inputs().shape == (0, 1, 8, 8)
    assert len(split_off(empty, "test")) == 0


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("digitz", "did you mean 'digits'"),
        ("digits:x", "is written digits"),
        ("npz", "is written npz:PATH"),
        ("npz:/nowhere.npz", "cannot read /nowhere.npz"),
        ("folder:/nowhere", "folder:/nowhere: there is no such folder"),
        (
            "python:no_such_module:f",
            "there is no module 'no_such_module': install it, put its folder in PYTHONPATH, or start",
        ),
        (f"python:{__name__}:fails", "failed with RuntimeError in .*test_data.py line"),
        (f"python:{__name__}:given_nonsense", "expected \\(images, labels\\)"),
        ("MNIST", "needs data-root"),
    ],
)
def test_wrong_sources_are_refused_with_the_reason(source: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_source(source)


def test_a_missing_data_set_is_refused_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no MNIST below .* download=True"):
        load_source("mnist", data_root=tmp_path)
    with pytest.raises(ConfigError, match=r"EMNIST\('.*', split='letters', download=True\)"):
        load_source("emnist", data_root=tmp_path)


def test_every_kind_of_source_is_lower_case() -> None:
    assert all(kind == kind.lower() for kind in SOURCES)


def test_python_functions_may_return_arrays_or_data() -> None:
    arrays = load_source(f"python:{__name__}:given_examples")
    assert (len(arrays), arrays.input_shape, arrays.class_names) == (10, (1, 4, 4), ("0", "1"))
    assert load_source(f"python:{__name__}:given_data").num_classes == 5


def test_a_source_without_official_parts_is_whole_unless_a_part_is_named() -> None:
    source = f"python:{__name__}:given_examples"
    assert [len(load_source(source, split=split)) for split in ("train", "test")] == [10, 10]
    # Ten examples, five of each class: one of each is for testing.
    assert [len(load_source(part_of(source, split))) for split in ("train", "test")] == [8, 2]
    assert sorted(load_source(f"{source}#test", split="train").labels) == [0, 1]


def test_a_python_function_with_a_split_parameter_returns_its_own_parts() -> None:
    source = f"python:{__name__}:given_by_split"
    assert [len(load_source(source, split=split)) for split in ("train", "test")] == [7, 3]
    assert [len(load_source(part_of(source, split))) for split in ("train", "test")] == [7, 3]


def test_a_python_function_with_a_parameter_data_root_gets_it(tmp_path: Path) -> None:
    np.save(tmp_path / "labels.npy", np.arange(4) % 2)
    source = f"python:{__name__}:given_below"
    assert load_source(source, data_root=tmp_path).labels.tolist() == [0, 1, 0, 1]
    # What the function says itself is not said again.
    with pytest.raises(ConfigError, match=r"^nothing without a root$"):
        load_source(source)


@pytest.mark.parametrize(
    ("source", "train", "test"),
    [
        ("digits", "digits", "digits"),
        ("MNIST", "MNIST", "MNIST"),
        ("npz:a.npz", "npz:a.npz#train", "npz:a.npz#test"),
        (" folder:p#train", "folder:p#train", "folder:p#test"),
    ],
)
def test_part_of_names_the_parts_of_a_shared_source(source: str, train: str, test: str) -> None:
    assert (part_of(source, "train"), part_of(source, "test")) == (train, test)


@pytest.mark.parametrize("kind", sorted(TABLES))
def test_a_table_has_two_parts(kind: str) -> None:
    assert part_of(f"{kind}:rows?label=y", "test") == f"{kind}:rows?label=y#test"


def test_the_parts_of_a_shared_source_are_disjoint(tmp_path: Path) -> None:
    images = np.arange(60, dtype=np.uint8).reshape(60, 1, 1, 1)
    np.savez(tmp_path / "one.npz", images=images, labels=np.arange(60) % 3)
    parts = [load_source(part_of(f"npz:{tmp_path / 'one.npz'}", split)) for split in ("train", "test")]
    assert sorted(int(pixel) for part in parts for pixel in part.images.ravel()) == list(range(60))


def test_npz_with_and_without_a_test_part(tmp_path: Path) -> None:
    images, labels = np.zeros((10, 5, 6, 3), np.uint8), np.arange(10) % 2
    np.savez(tmp_path / "one.npz", images=images, labels=labels, class_names=np.array(["cat", "dog"]))
    data = load_source("npz:one.npz", data_root=tmp_path)
    assert (len(data), data.input_shape, data.class_names) == (10, (3, 5, 6), ("cat", "dog"))
    np.savez(tmp_path / "two.npz", x_train=images, y_train=labels, x_test=images[:4], y_test=labels[:4])
    assert len(load_source(f"npz:{tmp_path / 'two.npz'}")) == 10
    assert len(load_source(f"npz:{tmp_path / 'two.npz'}", split="test")) == 4


def test_npz_is_never_unpickled(tmp_path: Path) -> None:
    np.savez(tmp_path / "bad.npz", images=np.array([{}], dtype=object), labels=np.zeros(1, np.int64))
    with pytest.raises(ConfigError, match="cannot read"):
        load_source(f"npz:{tmp_path / 'bad.npz'}")
    np.savez(tmp_path / "typo.npz", image=np.zeros((1, 2, 2)), labels=np.zeros(1, np.int64))
    with pytest.raises(ConfigError, match="no array 'images' \\(did you mean 'image'"):
        load_source(f"npz:{tmp_path / 'typo.npz'}")


def save_picture(path: Path, *, size: tuple[int, int] = (4, 3), mode: str = "L", value: int = 7) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, value if mode == "L" else (value, 0, 0)).save(path)


def test_folder_has_a_class_per_sub_folder(tmp_path: Path) -> None:
    for number in range(5):
        save_picture(tmp_path / "cat" / f"{number}.png")
        save_picture(tmp_path / "dog" / f"{number}.png", value=9)
    data = load_source(f"folder:{tmp_path}")
    assert (len(data), data.input_shape, data.class_names) == (10, (1, 3, 4), ("cat", "dog"))
    assert {
        (int(label), int(image[0, 0, 0])) for label, image in zip(data.labels, data.images, strict=True)
    } == {(0, 7), (1, 9)}


def test_folder_with_its_own_parts_and_colour(tmp_path: Path) -> None:
    save_picture(tmp_path / "train" / "cat" / "a.png", mode="RGB")
    save_picture(tmp_path / "train" / "cat" / "b.png")
    save_picture(tmp_path / "test" / "cat" / "c.png")
    train = load_source("folder:.", data_root=tmp_path)
    assert (len(train), train.input_shape) == (2, (3, 3, 4))
    assert load_source("folder:.", data_root=tmp_path, split="test").input_shape == (1, 3, 4)


def test_pictures_of_different_sizes_are_resized_to_the_most_common_size_with_one_log_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name, size in (("a", (5, 5)), ("b", (4, 3)), ("c", (4, 3)), ("d", (9, 2))):
        save_picture(tmp_path / "cat" / f"{name}.png", size=size)
    with caplog.at_level(logging.INFO, "edge_client"):
        data = load_source(f"folder:{tmp_path}")
    assert data.input_shape == (1, 3, 4)
    assert (data.images == 7).all()
    assert caplog.messages == [f"{tmp_path}: 2 of 4 pictures are not 4x3 like most: they are resized to it"]


def test_picture_orientation_is_applied(tmp_path: Path) -> None:
    """The EXIF orientation of a picture is applied, as `infer` does."""
    (tmp_path / "cat").mkdir()
    turned = Image.Exif()
    turned[0x0112] = 6
    Image.new("L", (4, 3)).save(tmp_path / "cat" / "a.jpg", exif=turned)
    assert load_source(f"folder:{tmp_path}").input_shape == (1, 4, 3)


def test_an_unreadable_picture_and_an_empty_folder_are_named(tmp_path: Path) -> None:
    save_picture(tmp_path / "cat" / "a.png")
    (tmp_path / "dog").mkdir()
    with pytest.raises(
        ConfigError, match=r"dog: class 'dog' has no file that can be read: the folder is empty"
    ):
        load_source(f"folder:{tmp_path}")
    (tmp_path / "dog").rmdir()
    (tmp_path / "cat" / "a.png").write_bytes(b"no picture")
    with pytest.raises(ConfigError, match=r"cannot read image .*a\.png: it is not an image"):
        load_source(f"folder:{tmp_path}")


def test_plain_sources_do_not_import_torch(tmp_path: Path) -> None:
    save_picture(tmp_path / "cat" / "a.png")
    program = (
        "import sys; from edge_client.data.sources import load_source;"
        f"load_source('digits'); load_source('python:{__name__}:given_data');"
        f"load_source('folder:{tmp_path}');"
        "assert not {'torch', 'torchvision', 'sklearn'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(__file__).parents[3])


def write_idx(path: Path, array: Pixels) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    path.write_bytes(bytes([0, 0, 8, array.ndim]) + sizes + array.tobytes())


def test_named_sets_in_idx_files_are_mapped_without_torchvision(tmp_path: Path) -> None:
    images = np.arange(3 * 4 * 5, dtype=np.uint8).reshape(3, 4, 5)
    write_idx(tmp_path / "MNIST/raw/train-images-idx3-ubyte", images)
    write_idx(tmp_path / "MNIST/raw/train-labels-idx1-ubyte", np.array([7, 0, 9], np.uint8))
    program = (
        "import sys; from pathlib import Path; from edge_client.data.sources import load_source;"
        f"data = load_source('MNIST', data_root=Path({str(tmp_path)!r}));"
        "print(data.images.tolist(), data.labels.tolist(), data.class_names[9], data.images.flags.writeable);"
        "assert not {'torch', 'torchvision'} & set(sys.modules)"
    )
    root = Path(__file__).parents[3]
    found = subprocess.run([sys.executable, "-c", program], check=True, cwd=root, capture_output=True)
    assert found.stdout.decode().strip() == f"{images[:, None].tolist()} [7, 0, 9] 9 - nine False"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\0\0", "not an IDX file"),
        (b"\0\0\x0d\1\0\0\0\0", "not an IDX"),
        (b"\0\0\x08\1\0\0\0\3ab", "cut off"),
    ],
)
def test_a_damaged_idx_file_is_refused_with_the_reason(tmp_path: Path, data: bytes, why: str) -> None:
    for name in ("images-idx3", "labels-idx1"):
        (path := tmp_path / f"MNIST/raw/train-{name}-ubyte").parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    with pytest.raises(ConfigError, match=why):
        load_source("MNIST", data_root=tmp_path)


@needs_data
@pytest.mark.parametrize("source", ["MNIST", "FashionMNIST"])
def test_torchvision_sets(source: str) -> None:
    test = load_source(source, data_root=DATA_ROOT, split="test")
    assert (len(test), test.input_shape, test.num_classes) == (10_000, (1, 28, 28), 10)
    assert abs(float(test.inputs().mean())) < 0.02


@needs_data
def test_packed_emnist_is_refused_with_a_remedy() -> None:
    with pytest.raises(ConfigError, match="unpacked"):
        load_source("EMNIST", data_root=DATA_ROOT)


@needs_data
def test_emnist_letters_start_at_zero_and_stand_upright(tmp_path: Path) -> None:
    import gzip

    for packed in (DATA_ROOT / "EMNIST" / "raw").glob("*test*.gz"):
        unpacked = tmp_path / "EMNIST" / "raw" / packed.stem
        unpacked.parent.mkdir(parents=True, exist_ok=True)
        unpacked.write_bytes(gzip.decompress(packed.read_bytes()))
        # torchvision wants the training files to exist too; they are not read here.
        unpacked.with_name(unpacked.name.replace("test", "train")).touch()
    test = load_source("emnist", data_root=tmp_path, split="test")
    assert (len(test), test.input_shape, test.class_names[0], test.class_names[25]) == (
        20_800,
        (1, 28, 28),
        "a",
        "z",
    )
    assert (test.labels.min(), test.labels.max()) == (0, 25)
    # A mean T has its bar at the top and its stem in the middle: ink at the upper, not the lower left.
    mean_t = test.images[test.labels == 19].mean(axis=0)[0]
    assert mean_t[6:10, :8].mean() > 1.5 * mean_t[18:22, :8].mean()


@needs_data
def test_cifar_subset_is_an_npz() -> None:
    data = load_source("npz:cifar10-subset/cifar10_subset.npz", data_root=DATA_ROOT, split="test")
    assert (len(data), data.input_shape) == (1000, (3, 32, 32))
    assert "frog" in data.class_names
