"""Topics survive a round trip, and any other topic is refused."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paho.mqtt.client import topic_matches_sub as matches

from schemas.base import NAME_PATTERN, is_name
from schemas.errors import PeerError
from schemas.topics import (
    SITE_CHANNELS,
    Channel,
    DeviceTopic,
    EnrolTopic,
    SiteTopic,
    StateTopic,
    authority_filters,
    device_filters,
    gateway_filters,
    is_code_id,
    parse_topic,
    rollout_filters,
    server_filters,
    site_filters,
    stray_gateway_filters,
)

names = st.from_regex(NAME_PATTERN.replace("$", r"\Z"), fullmatch=True)


@given(federation=names, device=names, channel=st.sampled_from(Channel))
def test_a_topic_survives_a_round_trip(federation, device, channel):
    for topic in (DeviceTopic(federation, device, channel), StateTopic(federation)):
        assert parse_topic(str(topic)) == topic


@given(
    federation=names, site=names, device=st.just("") | names, channel=st.sampled_from(sorted(SITE_CHANNELS))
)
def test_a_topic_of_a_site_survives_a_round_trip(federation, site, device, channel):
    topic = SiteTopic(federation, site, channel, device)
    assert parse_topic(str(topic)) == topic


def test_a_site_and_its_devices_are_heard_above_and_told_below():
    for device in ("", "barn.pi"):
        up, down = (str(SiteTopic("home", "barn", way, device)) for way in (Channel.UP, Channel.DOWN))
        assert [matches(filter_, up) for filter_ in site_filters("home")] == [True]
        assert [matches(filter_, down) for filter_ in site_filters("home")] == [False]
        assert [matches(filter_, down) for filter_ in gateway_filters("home", "barn")] == [False, True]
        assert not any(matches(filter_, down) for filter_ in gateway_filters("home", "bar"))
        (births,) = stray_gateway_filters("home")
        assert matches(births, str(SiteTopic("home", "barn", Channel.BIRTH, device))) == (not device)


def test_what_a_gateway_does_not_pass_on_is_no_topic_of_a_site():
    for text in ("sites/barn/up/rollout", "sites/barn/up/devices/pi/rollout", "sites/barn/up/device/pi/blob"):
        with pytest.raises(PeerError):
            parse_topic(f"fed/v1/home/{text}")


@given(federation=names, sender=names | st.from_regex(r"~[0-9a-f]{16}", fullmatch=True))
def test_an_enrolment_topic_survives_a_round_trip(federation, sender):
    for part in ("request", "answer"):
        assert parse_topic(str(EnrolTopic(federation, sender, part))) == EnrolTopic(federation, sender, part)


@pytest.mark.parametrize(
    "text",
    ["", "pi", "~", "~0123456789abcde", "~0123456789abcdeF", "~0123456789abcdef\n", "0123456789abcdef~"],
)
def test_other_text_is_not_a_code_id(text):
    assert not is_code_id(text)


def test_a_code_id_is_not_a_valid_name():
    assert is_code_id("~0123456789abcdef")
    assert not is_name("~0123456789abcdef")


def test_only_the_authority_receives_enrolment_requests():
    request, answer = (EnrolTopic("home", "pi", part) for part in ("request", "answer"))
    assert [matches(filter_, str(request)) for filter_ in authority_filters("home")] == [True]
    assert [matches(filter_, str(answer)) for filter_ in authority_filters("home")] == [False]
    for filter_ in (*server_filters("home"), *device_filters("home", "pi")):
        assert not matches(filter_, str(request))
        assert not matches(filter_, str(answer))


def test_topics_match_those_in_the_broker_rules():
    assert str(DeviceTopic("home", "pi", Channel.BIRTH)) == "fed/v1/home/devices/pi/up/birth"
    assert str(DeviceTopic("home", "pi", Channel.DOWN_BLOB)) == "fed/v1/home/devices/pi/down/blob"
    assert str(StateTopic("home")) == "fed/v1/home/all/state"
    assert str(EnrolTopic("home", "pi", "request")) == "fed/v1/home/enrol/pi/request"
    assert EnrolTopic("home", "pi", "answer").within == "pi/answer"


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
        parse_topic(topic)


@given(st.text(max_size=80))
def test_any_text_is_parsed_as_a_topic_or_refused(text):
    for topic in (text, f"fed/v1/{text}", f"fed/v1/home/devices/{text}"):
        with contextlib.suppress(PeerError):
            assert str(parse_topic(topic)) == topic


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "0", "x" * 64])
def test_a_name_that_is_valid_in_a_topic_is_accepted(name):
    assert is_name(name)


@pytest.mark.parametrize("name", ["", ".a", "-a", "a b", "a/b", "a#", "a+", "é", "x" * 65, "a\n", "a\0"])
def test_a_name_that_is_invalid_in_a_topic_is_refused(name):
    assert not is_name(name)


@pytest.mark.parametrize("channel", Channel)
def test_each_side_receives_only_its_own_messages_and_only_once(channel):
    topic, down = str(DeviceTopic("home", "pi", channel)), channel.startswith("down/")
    matched = [matches(filter_, topic) for filter_ in device_filters("home", "pi")]
    assert matched.count(True) == (1 if down else 0)
    assert [matches(filter_, topic) for filter_ in server_filters("home")] == [not down]
    assert not any(matches(filter_, topic) for filter_ in device_filters("home", "other"))


def test_every_device_receives_the_state_but_the_server_does_not():
    topic = str(StateTopic("home"))
    assert sum(matches(filter_, topic) for filter_ in device_filters("home", "pi")) == 1
    assert not any(matches(filter_, topic) for filter_ in server_filters("home"))


def test_a_rollout_receives_only_births_and_rollout_messages():
    received = {
        channel
        for channel in Channel
        if any(
            matches(filter_, str(DeviceTopic("home", "pi", channel))) for filter_ in rollout_filters("home")
        )
    }
    assert received == {Channel.BIRTH, Channel.UP_ROLLOUT}
