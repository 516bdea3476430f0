"""The bridge of the guide: devices at the broker of a site take part in a run at the centre's broker."""

import re
from pathlib import Path

from edge_client.transport.broker_link import BrokerAddress
from tests.edge_client.cli.doctor.test_broker import mosquitto
from tests.integration.conftest import DEADLINE_S, ONE_BROKER, demo_config
from tests.integration.device_threads import devices

GUIDE = Path("deploy/docs/guides/fleet/brokers.md")


def lines(federation: str, centre: BrokerAddress) -> list[str]:
    """The guide's lines for Mosquitto, for this federation and centre."""
    (block,) = re.findall(r"^    connection centre\n(?:    .+\n)+", GUIDE.read_text(), re.MULTILINE)
    own = block.replace("fed/v1/home/", f"fed/v1/{federation}/").replace(
        "broker.example:8883", f"{centre.host}:{centre.port}"
    )
    return [line.strip() for line in own.splitlines()]


@ONE_BROKER
def test_a_run_reaches_devices_through_a_bridge(serve, address: BrokerAddress, tmp_path: Path) -> None:
    config = demo_config(rounds=1, **{"clients.num-clients": 2, "start-clients": 2})
    run = serve(config)
    with (
        mosquitto(tmp_path, *lines("test", address)) as site,
        devices(config, site, tmp_path / "devices") as ends,
    ):
        assert run.finished().outcome == "finished"
        assert {end.result(timeout=DEADLINE_S) for end in ends} == {"finished"}
    (record,) = run.server.reporter.counters.history
    assert len(record.completed) == 2


def test_no_topic_of_the_bridge_has_two_owners() -> None:
    owners = [
        line.split()[2] for line in lines("home", BrokerAddress("centre", 1)) if line.startswith("topic")
    ]
    assert set(owners) == {"in", "out"}
