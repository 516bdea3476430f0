"""What `edge-client run` makes of its data: how much it trains on, what it holds out, and what it says."""

import logging
from pathlib import Path

import numpy as np
import pytest

from edge_client.cli.commands.run import _local_source
from edge_client.cli.main import EDGE_CLIENT
from edge_client.data.local import LocalData


def clips(path: Path, *, count: int = 150, classes: int = 5) -> Path:
    """An archive of `count` examples without official parts."""
    images = np.arange(count, dtype=np.uint8).reshape(count, 1, 1, 1)
    np.savez(path, images=images, labels=np.arange(count) % classes)
    return path


def taken(*words: str) -> LocalData:
    return _local_source(EDGE_CLIENT._parsed(["run", *words])).read()


def test_a_device_trains_on_all_of_its_own_data_but_its_hold_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = f"npz:{clips(tmp_path / 'clips.npz')}"
    with caplog.at_level(logging.INFO, "edge_client"):
        data = taken("--data", source)
    assert (len(data.train), len(data.held_out)) == (120, 30)
    assert caplog.messages == [f"{source}: 150 examples, 120 trained on, 30 held out"]


def test_a_device_of_a_common_source_leaves_the_servers_part_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = f"npz:{clips(tmp_path / 'clips.npz')}#train"
    with caplog.at_level(logging.INFO, "edge_client"):
        data = taken("--data", source, "--share", "1/2")
    assert caplog.messages == [f"{source} (share 1/2): 60 examples, 48 trained on, 12 held out"]
    assert (len(data.train), len(data.held_out)) == (48, 12)


def test_every_digit_is_held_out_and_trained_on() -> None:
    """With 150 of them at random one digit had none of the 24 that were held out."""
    for seed in range(5):
        data = taken("--data", "digits", "--share", "1/10", "--seed", str(seed))
        assert set(data.train.labels) == set(data.held_out.labels) == set(range(10))
