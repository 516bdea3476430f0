"""Arrays and datasets of the program."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import torch
from torch.utils.data import TensorDataset

from edge_client.data.sources import load_source
from edge_server.simulation.library.simulate import data_source
from schemas.errors import ConfigError
from tests.edge_server.simulation.library.small import X, Y


@pytest.mark.parametrize(
    "data",
    [(X, Y), (torch.from_numpy(X), list(Y)), TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))],
    ids=["arrays", "tensor and list", "dataset"],
)
def test_examples_become_a_source_that_is_written_once(tmp_path: Path, data: Any) -> None:
    source = data_source(data, None, tmp_path)
    found = load_source(f"{source}#train")
    assert (len(found), found.num_classes) == (48, 2)
    np.savez(tmp_path / "by-hand.npz", images=X, labels=Y)
    same = load_source(f"npz:{tmp_path / 'by-hand.npz'}#train")
    assert np.array_equal(found.images, same.images)
    assert np.array_equal(found.labels, same.labels)
    data_source(data, None, tmp_path)
    assert len(list(tmp_path.glob("data-*.npz"))) == 1


def test_labels_may_be_words_and_test_examples_are_kept_apart(tmp_path: Path) -> None:
    words = pandas.Series(np.array(["no", "yes"])[Y])
    source = data_source((X, words), (X[:4], ["yes", "no", "yes", "maybe"]), tmp_path)
    found = load_source(source, split="test")
    assert found.class_names == ("maybe", "no", "yes")
    assert list(found.labels) == [2, 1, 2, 0]
    assert len(load_source(source)) == 60


def test_a_name_is_the_source_itself(tmp_path: Path) -> None:
    assert data_source("digits", None, tmp_path) == "digits"
    with pytest.raises(ConfigError, match="test_data: goes with arrays"):
        data_source("digits", (X, Y), tmp_path)


@pytest.mark.parametrize("data", [X, 3, (X, Y, Y), ([[1], [1, 2]], [0, 1]), load_source("digits")])
def test_what_are_no_examples_are_refused(tmp_path: Path, data: Any) -> None:
    with pytest.raises(
        ConfigError, match=r"^data: (pass \((x, y|data\.images)|the examples are not numbers)"
    ):
        data_source(data, None, tmp_path)
