"""Topics survive a round trip, and any other topic is refused."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paho.mqtt.client import topic_matches_sub as matches

from schemas import topics
from schemas.base import NAME_PATTERN, is_name
from schemas.errors import PeerError

names = st.from_regex(NAME_PATTERN.replace("$", r"\Z"), fullmatch=True)


@given(federation=names, device=names, channel=st.sampled_from(topics.Channel))
def test_a_topic_survives_a_round_trip(federation, device, channel):
    for topic in (topics.DeviceTopic(federation, device, channel), topics.StateTopic(federation)):
        assert topics.parse_topic(str(topic)) == topic


@given(
    federation=names,
    site=names,
    device=st.just("") | names,
    channel=st.sampled_from(sorted(topics.SITE_CHANNELS)),
)
def test_a_topic_of_a_site_survives_a_round_trip(federation, site, device, channel):
    topic = topics.SiteTopic(federation, site, channel, device)
    assert topics.parse_topic(str(topic)) == topic


def test_a_site_and_its_devices_are_heard_above_and_told_below():
    for device in ("", "barn.pi"):
        up, down = (
            str(topics.SiteTopic("home", "barn", way, device))
            for way in (topics.Channel.UP, topics.Channel.DOWN)
        )
        assert [matches(filter_, up) for filter_ in topics.site_filters("home")] == [True]
        assert [matches(filter_, down) for filter_ in topics.site_filters("home")] == [False]
        assert [matches(filter_, down) for filter_ in topics.gateway_filters("home", "barn")] == [False, True]
        assert not any(matches(filter_, down) for filter_ in topics.gateway_filters("home", "bar"))
        (births,) = topics.stray_gateway_filters("home")
        assert matches(births, str(topics.SiteTopic("home", "barn", topics.Channel.BIRTH, device))) == (
            not device
        )


def test_what_a_gateway_does_not_pass_on_is_no_topic_of_a_site():
    for text in ("sites/barn/up/rollout", "sites/barn/up/devices/pi/rollout", "sites/barn/up/device/pi/blob"):
        with pytest.raises(PeerError):
            topics.parse_topic(f"fed/v1/home/{text}")


@given(federation=names, sender=names | st.from_regex(r"~[0-9a-f]{16}", fullmatch=True))
def test_an_enrolment_topic_survives_a_round_trip(federation, sender):
    for part in ("request", "answer"):
        assert topics.parse_topic(str(topics.EnrolTopic(federation, sender, part))) == topics.EnrolTopic(
            federation, sender, part
        )


@pytest.mark.parametrize(
    "text",
    ["", "pi", "~", "~0123456789abcde", "~0123456789abcdeF", "~0123456789abcdef\n", "0123456789abcdef~"],
)
def test_other_text_is_not_a_code_id(text):
    assert not topics.is_code_id(text)


def test_a_code_id_is_not_a_valid_name():
    assert topics.is_code_id("~0123456789abcdef")
    assert not is_name("~0123456789abcdef")


def test_only_the_authority_receives_enrolment_requests():
    request, answer = (topics.EnrolTopic("home", "pi", part) for part in ("request", "answer"))
    assert [matches(filter_, str(request)) for filter_ in topics.authority_filters("home")] == [True]
    assert [matches(filter_, str(answer)) for filter_ in topics.authority_filters("home")] == [False]
    for filter_ in (*topics.server_filters("home"), *topics.device_filters("home", "pi")):
        assert not matches(filter_, str(request))
        assert not matches(filter_, str(answer))


def test_topics_match_those_in_the_broker_rules():
    assert str(topics.DeviceTopic("home", "pi", topics.Channel.BIRTH)) == "fed/v1/home/devices/pi/up/birth"
    assert (
        str(topics.DeviceTopic("home", "pi", topics.Channel.DOWN_BLOB)) == "fed/v1/home/devices/pi/down/blob"
    )
    assert str(topics.StateTopic("home")) == "fed/v1/home/all/state"
    assert str(topics.EnrolTopic("home", "pi", "request")) == "fed/v1/home/enrol/pi/request"
    assert topics.EnrolTopic("home", "pi", "answer").within == "pi/answer"


@pytest.mark.parametrize(
    "topic",
    [
        "",
        "fed",
        "fed/v1",
        "fed/v1/home",
        "fed/v1/home/",
        "fed/v2/home/all/state",
        "fed/v1/home/all",
        "fed/v1/home/all/state/more",
        "fed/v1/home/all/other",
        "fed/v1/home/devices",
        "fed/v1/home/devices/pi",
        "fed/v1/home/devices/pi/up",
        "fed/v1/home/devices/pi/up/gossip",
        "fed/v1/home/devices/pi/up/control/more",
        "fed/v1/home/enrol/pi",
        "fed/v1/home/enrol/pi/request/more",
        "fed/v1/home/enrol/pi/other",
        "fed/v1/home/enrol/~pi/request",
        "fed/v1/home/devices//up/control",
        "fed/v1/home/devices/+/up/control",
        "fed/v1/home/devices/../up/control",
        "fed/v1/#/all/state",
        "fed/v1//all/state",
        "/fed/v1/home/all/state",
        "fed/v1/home\n/all/state",
        "fed/v1/home/devices/pi\n/up/birth",
        "$SYS/broker/version",
    ],
)
def test_any_other_topic_is_refused(topic):
    with pytest.raises(PeerError, match="not a topic"):
        topics.parse_topic(topic)


@given(st.text(max_size=80))
def test_any_text_is_parsed_as_a_topic_or_refused(text):
    for topic in (text, f"fed/v1/{text}", f"fed/v1/home/devices/{text}"):
        with contextlib.suppress(PeerError):
            assert str(topics.parse_topic(topic)) == topic


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "0", "x" * 64])
def test_a_name_that_is_valid_in_a_topic_is_accepted(name):
    assert is_name(name)


@pytest.mark.parametrize("name", ["", ".a", "-a", "a b", "a/b", "a#", "a+", "é", "x" * 65, "a\n", "a\0"])
def test_a_name_that_is_invalid_in_a_topic_is_refused(name):
    assert not is_name(name)


@pytest.mark.parametrize("channel", topics.Channel)
def test_each_side_receives_only_its_own_messages_and_only_once(channel):
    topic, down = str(topics.DeviceTopic("home", "pi", channel)), channel.startswith("down/")
    matched = [matches(filter_, topic) for filter_ in topics.device_filters("home", "pi")]
    assert matched.count(True) == (1 if down else 0)
    assert [matches(filter_, topic) for filter_ in topics.server_filters("home")] == [not down]
    assert not any(matches(filter_, topic) for filter_ in topics.device_filters("home", "other"))


def test_every_device_receives_the_state_but_the_server_does_not():
    topic = str(topics.StateTopic("home"))
    assert sum(matches(filter_, topic) for filter_ in topics.device_filters("home", "pi")) == 1
    assert not any(matches(filter_, topic) for filter_ in topics.server_filters("home"))


def test_a_rollout_receives_only_births_and_rollout_messages():
    received = {
        channel
        for channel in topics.Channel
        if any(
            matches(filter_, str(topics.DeviceTopic("home", "pi", channel)))
            for filter_ in topics.rollout_filters("home")
        )
    }
    assert received == {topics.Channel.BIRTH, topics.Channel.UP_ROLLOUT}
