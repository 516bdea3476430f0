"""Only changed messages are sent, at a limited rate."""

from edge_server.observability.integrations.home_assistant import topics
from edge_server.observability.integrations.home_assistant.states import DeviceMessages
from tests.edge_server.observability.integrations.home_assistant.moments import PLACES, moment, named

STATE, AVAILABILITY = PLACES.of("pi", "state"), PLACES.of("pi", "availability")


def test_an_unchanged_message_is_not_sent_again() -> None:
    outbox, first = topics.due(topics.SentMessages(), {STATE: b"1", AVAILABILITY: b"online"}, 0.0)
    assert dict(first) == {STATE: b"1", AVAILABILITY: b"online"}
    outbox, again = topics.due(outbox, {STATE: b"1", AVAILABILITY: b"online"}, 60.0)
    assert again == []


def test_states_of_a_device_are_spaced_and_the_last_is_sent() -> None:
    outbox, _ = topics.due(topics.SentMessages(), {STATE: b"1"}, 100.0)
    outbox, soon = topics.due(outbox, {STATE: b"2"}, 100.0 + topics.SPACING_S - 0.1)
    assert soon == []
    outbox, later = topics.due(outbox, {STATE: b"3"}, 100.0 + topics.SPACING_S)
    assert later == [(STATE, b"3")]


def test_a_lost_or_cleared_device_is_published_at_once() -> None:
    outbox, _ = topics.due(topics.SentMessages(), {STATE: b"1", AVAILABILITY: b"online"}, 0.0)
    _, lost = topics.due(outbox, {STATE: b"2", AVAILABILITY: b"offline"}, 0.5)
    assert lost == [(AVAILABILITY, b"offline")]
    _, cleared = topics.due(outbox, {STATE: b"", AVAILABILITY: b""}, 0.5)
    assert dict(cleared) == {STATE: b"", AVAILABILITY: b""}


def test_a_thousand_new_devices_are_all_published_in_turn() -> None:
    """4,000 messages at 100 a second, in turns of half a second: 100 in the first turn, then 50 each."""
    devices = [named(f"pi-{number}") for number in range(1000)]
    messages = DeviceMessages(PLACES).wanted_messages(moment(*devices), gone=frozenset(), away=())
    assert len(messages) == 4000
    outbox, sizes, sent = topics.SentMessages(), [], {}
    for turn in range(100):
        outbox, new = topics.due(outbox, messages, turn / 2)
        sizes.append(len(new))
        sent |= dict(new)
    assert sizes[0] == topics.MAX_PER_S
    assert set(sizes[1:79]) == {50}
    assert sent == messages
    assert sizes[-1] == 0


def test_a_device_that_changes_all_the_time_delays_no_other() -> None:
    """The message that has waited longest is sent first, whatever its name."""
    devices = {f"a-{number}": PLACES.of(f"a-{number}", "state") for number in range(300)}
    outbox, published = topics.SentMessages(), set()
    for turn in range(40):
        outbox, new = topics.due(outbox, dict.fromkeys(devices.values(), str(turn).encode()), turn / 2)
        published |= {topic for topic, _ in new}
    assert published == set(devices.values())


def test_after_a_reconnect_all_is_sent_again_at_the_limited_rate() -> None:
    messages = {PLACES.of(f"pi-{number}", "availability"): b"online" for number in range(500)}
    outbox = topics.SentMessages()
    for turn in range(20):
        outbox, _ = topics.due(outbox, messages, turn / 2)
    outbox, new = topics.due(topics.forget_sent(outbox), messages, 10.0)
    assert 0 < len(new) <= topics.MAX_PER_S
