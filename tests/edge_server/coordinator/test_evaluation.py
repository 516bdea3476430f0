"""The data on which the server tests its model."""

import numpy as np
import pytest

from edge_server.config.load import load_config
from edge_server.config.test_data import load_test_data
from edge_server.coordinator.evaluation import Testing as ServerTesting


def held_back() -> tuple[np.ndarray, np.ndarray]:
    return np.zeros((300, 1, 8, 8), np.uint8), np.arange(300) % 10


def test_the_servers_own_test_source_is_used_whole() -> None:
    source = f"python:{__name__}:held_back"
    config = load_config("fedavg", [f"data.source={source}"])
    data = load_test_data(config)
    assert data is not None
    assert len(data) == 300
    assert ServerTesting(config).tested_on == f"tested on 300 examples of {source}"


def all_alike() -> tuple[np.ndarray, np.ndarray]:
    return np.zeros((20, 1, 8, 8), np.uint8), np.full(20, 2)


def test_test_data_of_one_class_causes_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    source = f"python:{__name__}:all_alike"
    ServerTesting(load_config("fedavg", [f"data.source={source}"]))
    warnings = [line for line in caplog.messages if "one class" in line]
    assert warnings == [
        f"tested on 20 examples of {source} of one class, '2': any model that answers it is right"
    ]


def test_the_official_test_part_is_used() -> None:
    assert ServerTesting(load_config("fedavg", ["data.source=digits"])).tested_on == (
        "tested on 359 examples of digits"
    )
    shaped = load_config("fedavg", ["model.input-shape=[1, 8, 8]", "num-classes=10"])
    assert ServerTesting(shaped).tested_on == ""
