"""Bytes on each device's link: broadcasts, object store transfers, and limits on a device's claims."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from edge_client.transport.broker_link import parse_address
from edge_server.observability.counters import RunCounters
from edge_server.rounds.link_bytes import IndirectTraffic, LinkBytes, link_bytes
from edge_server.transport.broker.launch import RunningBroker
from tests.benchmarks.wire import relay
from tests.integration.conftest import BROKERS, Run
from tests.integration.conftest import broker as broker
from tests.integration.test_egress import HALVES, agents, config

TIERS = (1, 3, 5, 5)


@pytest.mark.parametrize("broker", [BROKERS[0]], indirect=True)
def test_a_devices_byte_counts_match_its_connection(broker: RunningBroker, tmp_path: Path) -> None:
    settings = config(**{"num-clients": len(TIERS)})
    with ExitStack() as stack:
        links = [stack.enter_context(relay((broker.host, broker.port))) for _ in TIERS]
        for number, (tier, link) in enumerate(zip(TIERS, links, strict=True)):
            url = f"mqtt://127.0.0.1:{link.port}"
            stack.enter_context(agents(url, tmp_path / str(number), (tier,), first=number))
        run = Run(settings, parse_address(broker.url), tmp_path / "run")
        stack.callback(run.stop)
        summary = run.finished()
    shown = {device.device: device for device in summary.devices}
    for number, link in enumerate(links):
        device = shown[f"pi-{number}"]
        # MQTT headers and acknowledgements are not counted.
        assert 0.98 * link.back.total < device.downlink_bytes < link.back.total
        assert 0.7 * link.towards.total < device.uplink_bytes < link.towards.total
    assert shown["pi-3"].downlink_bytes > HALVES > 2 * shown["pi-0"].downlink_bytes
    # The server sent one model, however many devices received it.
    assert summary.downlink_bytes < 1.03 * HALVES


def received_bytes(claim: int | None, *, published: int = 1000, fetched: int = 0, most: int = 0) -> int:
    tally = RunCounters()
    tally.count_published(["pi"], 3, published)
    tally.indirect.count_claim("pi", 3, heard=claim, fetched=fetched, most_fetched=most)
    return tally.over_link("pi").received


def test_a_claim_lowers_the_bytes_published_to_a_device_and_never_raises_them() -> None:
    assert [received_bytes(claim) for claim in (900, 1000, 10**15, None)] == [900, 1000, 1000, 1000]


def test_claimed_fetched_bytes_are_bounded_by_the_blobs_of_the_task() -> None:
    assert received_bytes(0, fetched=500, most=800) == 500
    assert received_bytes(0, fetched=10**15, most=800) == 800
    assert received_bytes(0, fetched=500) == 0


def test_a_claim_counts_once_and_only_for_its_own_attempt() -> None:
    traffic = IndirectTraffic()
    for attempt in (1, 2):
        traffic.count_published(["pi"], attempt, 1000)
    for _ in range(3):
        traffic.count_claim("pi", 1, heard=0, fetched=0, most_fetched=0)
        traffic.count_claim("pi", 2, heard=700, fetched=50, most_fetched=50)
    assert traffic.shared == {"pi": 1000 + 700 + 50}


def test_a_resumed_run_continues_counting() -> None:
    tally = RunCounters()
    tally.count_published(["pi"], 1, 1000)
    tally.count_sent("pi", 30)
    tally.count_received("pi", 7)
    tally.indirect.stored["pi"] += 400
    again = RunCounters()
    again.restore(tally.traffic(), ())
    assert again.over_link("pi") == link_bytes(tally.traffic(), "pi") == LinkBytes(1030, 407)
    assert again.downlink.total() == 1030
