"""The files of a simulation's examples hold what its devices have, and no more."""

import hashlib
from pathlib import Path

import numpy as np
import pytest

from edge_client.data.shapes import with_sides
from edge_client.data.sources import load_source
from edge_client.training.feature_cache import digest_examples
from edge_server.config.load import load_config
from edge_server.simulation import population
from edge_server.simulation.population import Counts, make_population, share_data


@pytest.mark.parametrize("block_bytes", [population.BLOCK_BYTES, 100])
def test_devices_read_their_own_examples_resized(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block_bytes: int
) -> None:
    monkeypatch.setattr(population, "BLOCK_BYTES", block_bytes)
    data = with_sides(load_source("digits"), (4, 4))
    whole = np.asarray(data.images)
    config = load_config("fedavg", ["num-clients=3", "samples-per-client=20", "data.partition=iid"])
    devices = make_population(config, data.strata, data.origins)
    shares = share_data(data, devices, tmp_path).open_shares()
    assert shares.data.images.shape == (60, 1, 4, 4)
    for device in devices:
        local = shares.of(device.name)
        assert (local.train.images == whole[device.train]).all()
        assert (local.train.labels == data.labels[device.train]).all()
        assert (local.held_out.images == whole[device.held_out]).all()


def test_examples_are_digested_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = load_source("digits")
    config = load_config("fedavg", ["num-clients=3", "samples-per-client=20", "data.partition=iid"])
    shares = share_data(data, make_population(config, data.strata), tmp_path).open_shares()
    first = digest_examples(shares.of("device-0001").train.images)
    assert first == digest_examples(shares.of("device-0001").train.images.copy())
    with monkeypatch.context() as patch:
        patch.setattr(hashlib, "blake2b", None)
        local = shares.of("device-0001")
        assert digest_examples(local.train.images) == first
    few = shares.of("device-0001", Counts(train=2, held_out=1))
    assert digest_examples(few.train.images) == first[:2]
    assert digest_examples(shares.of("device-0002").train.images) != first
