"""Two gateways of one site: the earlier one ends, also where the broker gives no reason."""

from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import pytest

from edge_client.transport import mqtt_client
from edge_client.transport.broker_link import parse_address
from edge_server.coordinator.gateway.gateway import GatewayStopped, SiteGateway
from edge_server.transport.broker.launch import find_mosquitto, running_broker

DEADLINE_S = 60


@pytest.mark.parametrize("kind", ["embedded", "mosquitto"])
def test_one_of_two_gateways_of_a_site_ends(kind: str, tmp_path: Path, monkeypatch) -> None:
    if kind == "mosquitto" and find_mosquitto() is None:
        pytest.skip("no mosquitto on this machine")
    monkeypatch.setattr(mqtt_client, "FIRST_DELAY_S", 0.1)
    with (
        running_broker(kind, tmp_path / "centre") as centre,
        running_broker("embedded", tmp_path / "b") as site,
    ):
        gateways = [
            SiteGateway(
                parse_address(centre.url),
                parse_address(site.url),
                federation="home",
                site="barn",
                folder=tmp_path / name,
            )
            for name in ("first", "second")
        ]
        gateways[1].below.link.open = lambda: None  # type: ignore[method-assign]
        with ThreadPoolExecutor(2) as pool:
            running = [pool.submit(gateway.run) for gateway in gateways]
            try:
                with pytest.raises(GatewayStopped, match="another gateway of the site 'barn' has connected"):
                    next(as_completed(running, timeout=DEADLINE_S)).result()
            finally:
                for gateway in gateways:
                    gateway.stop()
