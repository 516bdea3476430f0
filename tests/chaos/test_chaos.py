"""Four failures in runs of five devices leave the model bit-equal."""

from pathlib import Path

import pytest

from edge_server.transport.broker.launch import find_mosquitto
from tests.chaos.campaign import campaign


@pytest.mark.skipif(find_mosquitto() is None, reason="no mosquitto on this machine")
@pytest.mark.timeout(600)
def test_four_failures_change_nothing(tmp_path: Path) -> None:
    report = campaign(tmp_path, failures=4, rounds=2, per_run=4, seed=0, say=print, devices=5, network="mlp")
    assert report.failures == 4
    assert (report.lost, report.doubled, report.different) == (0, 0, 0)
