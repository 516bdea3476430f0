"""Two servers of one name: the one that came later gives up, and the first finishes its run."""

from pathlib import Path

import pytest

from edge_server.coordinator.server import Suspended
from edge_server.transport import stability
from tests.integration.conftest import ONE_BROKER, Run, demo_config
from tests.integration.device_threads import devices

SETTLED_S = 3.0
"""Longer than the pause after which the other server connects again."""


@ONE_BROKER
def test_the_later_of_two_servers_gives_up(
    address, serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stability, "SETTLED_S", SETTLED_S)
    config = demo_config(rounds=1, **{"num-clients": 2})
    first = serve(config)
    first.watched.until(lambda seen: not seen.no_link and seen.elapsed_s > SETTLED_S + 0.5)
    second = Run(config, address, tmp_path / "second")
    with pytest.raises(Suspended, match="a server of the federation 'test' seems to run already"):
        second.finished()
    with devices(config, address, tmp_path / "devices"):
        assert first.finished().outcome == "finished"
