"""The memory that devices can make the server use is bounded, even with made-up names."""

import pytest

from edge_server.coordinator.publisher import RateLimit
from edge_server.observability.counters import OTHERS, RunCounters
from edge_server.rounds import fleet
from edge_server.rounds.events import Send
from schemas.errors import Reason
from schemas.messages import Telemetry
from tests.edge_server.rounds.by_hand import refusals, started
from tests.edge_server.rounds.test_fleet import birth


@pytest.fixture
def at_most_three(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "MAX_DEVICES", 3)


@pytest.mark.usefixtures("at_most_three")
def test_devices_beyond_the_limit_are_refused_with_a_reason():
    run = started("a", "b", "c", start_clients=9)
    commands = run.hear(birth("d"))
    assert refusals(commands) == [("d", Reason.NOT_SELECTED)]
    assert "3 devices are known" in commands[0].message.detail
    assert [command for command in commands if not isinstance(command, Send)] == []
    assert set(run.federation.fleet.devices) == {"a", "b", "c"}
    assert run.hear(birth("a", 2)) == []
    assert run.federation.fleet.devices["a"].session == 2


@pytest.mark.usefixtures("at_most_three")
def test_made_up_names_are_counted_together():
    counts = RunCounters()
    for index in range(100):
        counts.count_received(f"made-up-{index}", 10)
        counts.count_sent(f"made-up-{index}", 1)
        counts.count_refusal(f"made-up-{index}", Reason.MALFORMED)
        parsed = Telemetry(federation="home", device=f"made-up-{index}", session=1, phase="idle")
        counts.keep_telemetry(parsed)
    assert counts.uplink == {"made-up-0": 10, "made-up-1": 10, "made-up-2": 10, OTHERS: 970}
    assert counts.downlink[OTHERS] == 97
    assert counts.refusals[OTHERS, "malformed"] == 97
    assert len(counts.telemetry) == 3


@pytest.mark.usefixtures("at_most_three")
def test_a_known_device_is_counted_by_name_even_after_made_up_names() -> None:
    counts = RunCounters(known=lambda device: device == "honest")
    for index in range(5):
        counts.count_received(f"made-up-{index}", 10)
        counts.count_refusal(f"made-up-{index}", Reason.MALFORMED)
    counts.count_received("honest", 7)
    assert counts.uplink == {"honest": 7, "made-up-1": 10, "made-up-2": 10, OTHERS: 30}
    assert counts.refusals[OTHERS, "malformed"] == 3
    assert counts.uplink.total() == 57
    assert counts.refused_of("made-up-0") == {}


def test_a_rate_limit_allows_a_fixed_number_per_window() -> None:
    window = RateLimit(2, 10.0)
    assert [window.allows(at) for at in (100.0, 101.0, 102.0, 109.9, 110.0)] == [
        True,
        True,
        False,
        False,
        True,
    ]
