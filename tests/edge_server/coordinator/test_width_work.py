"""Devices that train smaller tiers in some of their steps do the work of whole steps."""

from pathlib import Path

import pytest

from edge_server.config.load import load_config
from edge_server.coordinator.tier_assignment import WidthWork
from schemas.messages import TrainTask
from schemas.submodel import SubModelSpec
from tests.integration.bench import Bench

WORDS = ("model.name=cnn", "local-epochs=2", "tiers.ratios=[0.5, 0.0]", "rounds=3")


def epochs(bench: Bench, number: int) -> dict[str, int]:
    """The local epochs of the round's tasks, by device."""
    found = {}
    for name, task in bench.tasks(number, number).items():
        assert isinstance(task, TrainTask)
        found[name] = task.training.local_epochs
    return found


def test_further_epochs_begin_once_devices_train_smaller_tiers(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "attending", *WORDS)
    work = WidthWork(bench.coordinator.model)
    # In round one no order is known, and a device trains its own sub-model alone.
    assert work.share(SubModelSpec()) == 1
    assert epochs(bench, 1) == {"weak": 2, "strong": 2}
    record, updates = bench.round(1)
    assert record.completed == ("strong", "weak")
    small, whole = bench.coordinator.model.tier_specs().values()
    share = 0.5 + 0.5 * work.macs(small) / work.macs(whole)
    assert work.share(whole) == pytest.approx(share)
    assert work.share(small) == 1
    # 2 / 0.65 are 3.1 epochs for the device of the whole model; the smallest tier has no smaller one.
    assert share == pytest.approx(0.65, abs=0.02)
    assert epochs(bench, 2) == {"weak": 2, "strong": 3}
    record, updates = bench.round(2)
    assert updates["strong"].metrics.epochs == 3
    assert record.local_epochs == 3


@pytest.mark.parametrize("recipe", ["attending", "fjord"])
def test_epochs_stay_equal_where_the_file_or_the_recipe_has_them_so(tmp_path: Path, recipe: str) -> None:
    words = ("tiers.equal-work=false",) if recipe == "attending" else ()
    bench = Bench(tmp_path, recipe, *WORDS, *words)
    bench.round(1)
    assert epochs(bench, 2) == {"weak": 2, "strong": 2}


def test_a_file_without_the_setting_has_the_text_of_earlier_versions() -> None:
    assert "equal-work" not in load_config("attending", []).to_toml()
    assert "equal-work = false" in load_config("attending", ["tiers.equal-work=false"]).to_toml()
