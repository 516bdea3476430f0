"""A client's accuracy: its tier's accuracy per class, weighted by the client's mix of classes."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from edge_client.data.dataset import make_labelled_data
from edge_server.config.load import load_config
from edge_server.simulation.experiments.league_scores import FILE, class_accuracies, client_accuracies, of_mix
from edge_server.simulation.simulator import simulate
from tests.edge_server.simulation.experiments.made_up import Quiet
from tests.slow import mark_slow


def test_the_accuracy_of_a_class_is_its_share_of_right_answers() -> None:
    data = make_labelled_data(
        np.zeros((4, 1, 1, 1), np.uint8), np.array([0, 0, 1, 1]), class_names=("a", "b", "c")
    )
    outputs = np.array([[1, 0, 0], [0, 1, 0], [0, 1, 0], [0, 1, 0]], np.float32)
    found = class_accuracies(outputs, data)
    assert found[:2].tolist() == [0.5, 1.0]
    assert np.isnan(found[2])


def test_a_clients_mix_weighs_the_classes() -> None:
    accuracies = np.array([0.5, 1.0, np.nan])
    assert of_mix(accuracies, np.array([3, 1, 0])) == 0.625
    # The test data lacks the third class.
    assert of_mix(accuracies, np.array([0, 2, 5])) == 1.0


@mark_slow
def test_every_client_of_a_run_has_an_accuracy_and_it_is_kept(tmp_path: Path) -> None:
    words = ["data.source=digits", "model.name=mlp", "num-clients=5", "rounds=2", "partition=iid"]
    config = load_config("heterofl", [*words, "workers=1"])
    summary = partial(simulate, export=False)(config, out=tmp_path / "run", watcher=Quiet())
    found = client_accuracies(config, tmp_path / "run")
    assert sorted(found) == [f"device-000{number}" for number in range(1, 6)]
    # The fifth tier has the full model, and its device nearly the mix of the test data.
    assert summary.test_accuracy is not None
    assert found["device-0005"] == pytest.approx(summary.test_accuracy, abs=0.05)
    assert json.loads((tmp_path / "run" / FILE).read_text()) == found


def test_a_run_without_models_has_no_accuracies(tmp_path: Path) -> None:
    assert client_accuracies(load_config("fedavg", ["data.source=digits"]), tmp_path) == {}
