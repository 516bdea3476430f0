"""How `edge-client run` splits its data into training and held-out examples, and what it logs."""

import logging
import tempfile
from pathlib import Path

import numpy as np
import pytest

from edge_client.cli.commands.run import make_local_source
from edge_client.cli.main import EDGE_CLIENT
from edge_client.data.local import LocalData


def save_clips(path: Path, *, count: int = 150, classes: int = 5) -> Path:
    """An archive of `count` examples without separate training and test parts."""
    images = np.arange(count, dtype=np.uint8).reshape(count, 1, 1, 1)
    np.savez(path, images=images, labels=np.arange(count) % classes)
    return path


def local_data(*words: str) -> LocalData:
    with tempfile.TemporaryDirectory() as state:
        return make_local_source(EDGE_CLIENT.parse(["run", *words]), Path(state)).read()


def test_a_device_trains_on_all_of_its_own_data_except_the_held_out_part(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = f"npz:{save_clips(tmp_path / 'clips.npz')}"
    with caplog.at_level(logging.INFO, "edge_client"):
        data = local_data("--data", source)
    assert (len(data.train), len(data.held_out)) == (120, 30)
    assert caplog.messages == [f"{source}: 150 examples, 120 trained on, 30 held out"]


def test_a_device_with_a_shared_source_does_not_use_the_test_part(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = f"npz:{save_clips(tmp_path / 'clips.npz')}#train"
    with caplog.at_level(logging.INFO, "edge_client"):
        data = local_data("--data", source, "--share", "1/2")
    assert caplog.messages == [f"{source} (share 1/2): 60 examples, 48 trained on, 12 held out"]
    assert (len(data.train), len(data.held_out)) == (48, 12)


def test_every_digit_is_held_out_and_trained_on() -> None:
    """An unstratified split of 150 random digits had held out no example of one digit."""
    for seed in range(5):
        data = local_data("--data", "digits", "--share", "1/10", "--seed", str(seed))
        assert set(data.train.labels) == set(data.held_out.labels) == set(range(10))
