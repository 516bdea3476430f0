"""A takeover in a run of five devices leaves the model bit-equal."""

from pathlib import Path

import pytest

from edge_server.transport.broker.launch import find_mosquitto
from tests.chaos.takeovers import takeovers
from tests.slow import mark_slow


@mark_slow
@pytest.mark.skipif(find_mosquitto() is None, reason="no mosquitto on this machine")
@pytest.mark.timeout(600)
def test_a_takeover_changes_nothing(tmp_path: Path) -> None:
    report = takeovers(tmp_path, failures=1, rounds=3, per_run=1, seed=2, say=print, devices=5, network="mlp")
    assert report.failures == 1
    assert (report.lost, report.doubled, report.forked, report.different) == (0, 0, 0, 0)
