"""Which folders are parts, which are classes, and which are no data."""

import logging
from pathlib import Path

import pytest

from edge_client.data.class_folders import TESTING, class_folders, files_below, files_of_classes, parts_of
from edge_client.data.said_once import say_once
from edge_client.data.sources import load_source
from schemas.errors import ConfigError

ENDINGS = (".jpg", ".png")


@pytest.fixture(autouse=True)
def _nothing_said() -> None:
    say_once.cache_clear()


def make(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root


@pytest.mark.parametrize("training", ["train", "training", "Train"])
@pytest.mark.parametrize("testing", [*TESTING, "Testing"])
def test_usual_names_of_parts_are_parts(tmp_path: Path, training: str, testing: str) -> None:
    make(tmp_path, f"{training}/cat/1.png", f"{training}/dog/1.png", f"{testing}/cow/1.png")
    parts = parts_of(tmp_path, "train"), parts_of(tmp_path, "test")
    assert [part.chosen for part in parts] == [tmp_path / training, tmp_path / testing]
    assert all(part.official and part.class_names == ("cat", "cow", "dog") for part in parts)


def test_of_three_parts_the_validation_part_is_not_used_which_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make(tmp_path, "train/cat/1.png", "val/cat/1.png", "test/cat/1.png")
    with caplog.at_level(logging.INFO):
        assert parts_of(tmp_path, "test").chosen == tmp_path / "test"
        assert parts_of(tmp_path, "train").chosen == tmp_path / "train"
    assert caplog.messages == [f"{tmp_path}: train is for training, test for testing, val is not used"]


def test_a_root_without_a_pair_of_parts_is_read_as_a_whole(tmp_path: Path) -> None:
    make(tmp_path, "train/1.png", "bus/1.png")
    parts = parts_of(tmp_path, "test")
    assert (parts.chosen, parts.official, parts.class_names) == (tmp_path, False, ("bus", "train"))


@pytest.mark.parametrize("part", ["train", "testing", "val"])
def test_the_only_part_has_the_classes(tmp_path: Path, part: str) -> None:
    make(tmp_path, f"{part}/cat/1.png", f"{part}/dog/1.png", ".cache/1.png")
    parts = parts_of(tmp_path, "train")
    assert (parts.chosen, parts.official, parts.class_names) == (tmp_path / part, False, ("cat", "dog"))


NO_DATA = (
    *(".ipynb_checkpoints", ".thumbnails", "@eaDir", "lost+found", "_background_noise_", "__MACOSX"),
    *("$RECYCLE.BIN", "System Volume Information", "#recycle"),
)


@pytest.mark.parametrize("name", NO_DATA)
def test_hidden_and_service_folders_are_no_classes_and_have_no_files(tmp_path: Path, name: str) -> None:
    make(tmp_path, "cat/1.png", f"cat/{name}/2.png", f"{name}/3.png")
    assert class_folders(tmp_path) == [tmp_path / "cat"]
    assert files_of_classes(tmp_path, ENDINGS) == {"cat": (tmp_path / "cat/1.png",)}


def test_what_is_no_data_is_skipped_and_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    make(tmp_path, "cat/1.png", "cat/._1.png", "cat/.DS_Store", "cat/Thumbs.db", "@eaDir/1.png")
    with caplog.at_level(logging.INFO):
        for _ in range(2):
            assert files_of_classes(tmp_path, ENDINGS) == {"cat": (tmp_path / "cat/1.png",)}
    assert caplog.messages == [
        f"{tmp_path}: skipped, hidden or no data: .DS_Store, ._1.png, @eaDir, Thumbs.db"
    ]


def test_files_of_another_kind_are_counted_by_ending(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make(tmp_path, "cat/1.PNG", "cat/2.heic", "dog/a/1.jpg", "dog/2.heic", "dog/notes", "dog/3.txt")
    with caplog.at_level(logging.INFO):
        found = files_of_classes(tmp_path, ENDINGS, remedies={".heic": "needs the extra heif"})
    assert found == {"cat": (tmp_path / "cat/1.PNG",), "dog": (tmp_path / "dog/a/1.jpg",)}
    assert caplog.messages == [
        f"{tmp_path}: files of another kind are left out: "
        "2 .heic (needs the extra heif), 1 .txt, 1 without ending"
    ]


@pytest.mark.parametrize(("name", "why"), [("dog/1.heic", "1 .heic"), ("dog/.x", "the folder is empty")])
def test_a_class_without_a_file_that_can_be_read_is_refused_by_name(
    tmp_path: Path, name: str, why: str
) -> None:
    make(tmp_path, "cat/1.png", name)
    with pytest.raises(ConfigError, match=rf"class 'dog' has no file that can be read: {why}: expected"):
        files_of_classes(tmp_path, ENDINGS)


def test_files_come_by_folder_and_name(tmp_path: Path) -> None:
    make(tmp_path, "b.jpg", "a-b/1.png", "a/b/1.png", "a/2.png", "a.png")
    names = [str(path.relative_to(tmp_path)) for path in files_below(tmp_path, ENDINGS).paths]
    assert names == ["a.png", "b.jpg", "a/2.png", "a-b/1.png", "a/b/1.png"]


@pytest.mark.parametrize(("kind", "ending"), [("folder", ".jpg"), ("wav", ".wav")])
def test_parts_without_folders_of_classes_are_named(tmp_path: Path, kind: str, ending: str) -> None:
    for part in ("train", "test"):
        (tmp_path / part).mkdir()
        (tmp_path / part / f"1{ending}").touch()
    with pytest.raises(
        ConfigError,
        match=f"train has 1 file such as {ending} and no sub-folders, .* train/CLASS/NAME{ending}",
    ):
        load_source(f"{kind}:{tmp_path}")


@pytest.mark.parametrize(("kind", "first"), [("folder", ".jpg, .png"), ("wav", ".wav, ")])
def test_the_usual_endings_are_named_first(tmp_path: Path, kind: str, first: str) -> None:
    (tmp_path / "cat").mkdir()
    with pytest.raises(ConfigError, match=f"the folder is empty: expected files such as {first}"):
        load_source(f"{kind}:{tmp_path}")
