"""Features are computed once per example, are the same from the file, and take no more than their room."""

from pathlib import Path

import numpy as np
import pytest

from edge_client.storage import atomic_files
from edge_client.storage.atomic_files import Space
from edge_client.training.feature_cache import FeatureCache, Places, Rows, digest_examples

WIDTH = 4
ROW = 16 + 4 * WIDTH  # bytes of a row with its digest
HEADER = 24


class Frozen:
    """Makes features of examples and counts them."""

    def __init__(self, examples: Rows) -> None:
        self._examples, self.computed = examples, 0

    def __call__(self, places: Places) -> Rows:
        self.computed += len(places)
        return self._examples[places].reshape(len(places), -1)[:, :WIDTH] / np.float32(3)


def examples(count: int, seed: int = 0) -> Rows:
    return np.random.default_rng(seed).standard_normal((count, 2, 3)).astype(np.float32)


def features(cache: FeatureCache, data: Rows, name: str = "head", **options: str) -> tuple[Rows, int]:
    """The features of the data, and how many were computed."""
    frozen = Frozen(data)
    kept = cache.features(name, digest_examples(data), frozen, width=WIDTH, **options)  # type: ignore[arg-type]
    assert kept.computed == frozen.computed
    return kept.rows, kept.computed


def test_each_example_is_computed_once_over_processes(tmp_path: Path) -> None:
    data = examples(5)
    first, _ = features(FeatureCache(tmp_path, limit=10_000), data)
    again, computed = features(FeatureCache(tmp_path, limit=10_000), data[::-1])
    assert computed == 0
    assert np.array_equal(again[::-1], first)
    assert np.array_equal(first, Frozen(data)(np.arange(5)))


@pytest.mark.parametrize("folder", [None, Path("there")])
def test_without_a_folder_or_room_nothing_is_kept(tmp_path: Path, folder: Path | None) -> None:
    cache = FeatureCache(folder and tmp_path / folder, limit=0 if folder else 10_000)
    data = examples(3)
    assert np.array_equal(features(cache, data)[0], features(cache, data)[0])
    assert features(cache, data)[1] == 3
    assert not list(tmp_path.iterdir())


def test_growing_data_adds_rows_and_gone_examples_drop_theirs(tmp_path: Path) -> None:
    cache, data = FeatureCache(tmp_path, limit=10_000), examples(6)
    features(cache, data[:4])
    assert features(cache, data)[1] == 2
    (file,) = tmp_path.iterdir()
    assert file.stat().st_size == HEADER + 6 * ROW
    assert features(cache, data[2:])[1] == 0
    assert file.stat().st_size == HEADER + 4 * ROW
    assert features(cache, data)[1] == 2


def test_a_changed_example_has_a_new_row(tmp_path: Path) -> None:
    cache, data = FeatureCache(tmp_path, limit=10_000), examples(3)
    features(cache, data)
    data[1, 0, 0] += 1
    rows, computed = features(cache, data)
    assert computed == 1
    assert np.array_equal(rows, Frozen(data)(np.arange(3)))
    assert next(tmp_path.iterdir()).stat().st_size == HEADER + 3 * ROW


def test_equal_examples_share_a_row(tmp_path: Path) -> None:
    data = np.concatenate([examples(2)] * 2)
    rows, computed = features(FeatureCache(tmp_path, limit=10_000), data)
    assert computed == 2
    assert np.array_equal(rows[:2], rows[2:])


def test_the_file_that_was_used_longest_ago_makes_room(tmp_path: Path) -> None:
    cache, data = FeatureCache(tmp_path, limit=2 * (HEADER + 3 * ROW)), examples(3)
    features(cache, data, "one")
    features(cache, data, "two")
    assert features(cache, data, "one")[1] == 0
    features(cache, data, "three")
    assert [features(cache, data, name)[1] for name in ("one", "three")] == [0, 0]
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) <= 2 * (HEADER + 3 * ROW)
    assert features(cache, data, "two")[1] == 3


def test_what_does_not_fit_is_computed_each_time(tmp_path: Path) -> None:
    cache, data = FeatureCache(tmp_path, limit=HEADER + 2 * ROW + 5), examples(3)
    first, _ = features(cache, data)
    (file,) = tmp_path.iterdir()
    written = file.stat().st_ino
    again, computed = features(cache, data)
    assert computed == 1
    assert np.array_equal(again, first)
    assert file.stat().st_ino == written, "the same rows were written again"


def test_a_damaged_file_is_made_anew(tmp_path: Path) -> None:
    cache, data = FeatureCache(tmp_path, limit=10_000), examples(3)
    first, _ = features(cache, data)
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    for damaged in (whole[:-1], whole[:10], b"", whole[:-1] + bytes([whole[-1] ^ 1])):
        file.write_bytes(damaged)
        rows, computed = features(cache, data)
        assert computed == 3
        assert np.array_equal(rows, first)
    assert file.read_bytes() == whole


def test_half_precision_rounds_with_and_without_a_file(tmp_path: Path) -> None:
    data = examples(3) * 1e6
    cache = FeatureCache(tmp_path, limit=10_000)
    rows = [features(each, data, kind="fp16")[0] for each in (cache, cache, FeatureCache())]
    assert rows[0].dtype == np.float32
    assert np.array_equal(rows[0], rows[1])
    assert np.array_equal(rows[0], rows[2])
    assert np.isfinite(rows[0]).all()
    assert next(tmp_path.iterdir()).stat().st_size == HEADER + 3 * (16 + 2 * WIDTH)


def test_a_disk_that_fails_costs_time_alone(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    cache, data = FeatureCache(tmp_path / "file", limit=10_000), examples(3)
    assert np.array_equal(features(cache, data)[0], Frozen(data)(np.arange(3)))
    assert features(cache, data)[1] == 3


def test_a_disk_that_is_nearly_full_keeps_no_features(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(atomic_files, "space_of", lambda _: Space(10**9, 10**6))
    cache, data = FeatureCache(tmp_path, limit=10_000), examples(3)
    assert np.array_equal(features(cache, data)[0], Frozen(data)(np.arange(3)))
    assert not list(tmp_path.iterdir())


def test_no_examples_have_no_features(tmp_path: Path) -> None:
    assert features(FeatureCache(tmp_path, limit=10_000), examples(0))[0].shape == (0, WIDTH)
