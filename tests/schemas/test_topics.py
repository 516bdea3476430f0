"""Topics as values: what is written is read again, and nothing else is read."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paho.mqtt.client import topic_matches_sub as matches

from schemas.errors import PeerError
from schemas.names import NAME_PATTERN, is_name
from schemas.topics import (
    Channel,
    DeviceTopic,
    EnrolTopic,
    StateTopic,
    authority_filters,
    device_filters,
    is_code_id,
    parse_topic,
    rollout_filters,
    server_filters,
)

names = st.from_regex(NAME_PATTERN.replace("$", r"\Z"), fullmatch=True)


@given(federation=names, device=names, channel=st.sampled_from(Channel))
def test_a_topic_is_read_as_it_was_written(federation, device, channel):
    for topic in (DeviceTopic(federation, device, channel), StateTopic(federation)):
        assert parse_topic(str(topic)) == topic


@given(federation=names, who=names | st.from_regex(r"~[0-9a-f]{16}", fullmatch=True))
def test_an_enrolment_topic_is_read_as_it_was_written(federation, who):
    for part in ("request", "answer"):
        assert parse_topic(str(EnrolTopic(federation, who, part))) == EnrolTopic(federation, who, part)


@pytest.mark.parametrize(
    "text",
    ["", "pi", "~", "~0123456789abcde", "~0123456789abcdeF", "~0123456789abcdef\n", "0123456789abcdef~"],
)
def test_no_other_text_is_the_id_of_a_code(text):
    assert not is_code_id(text)


def test_the_id_of_a_code_is_no_devices_name():
    assert is_code_id("~0123456789abcdef")
    assert not is_name("~0123456789abcdef")


def test_the_authority_hears_requests_and_nothing_else_and_nobody_else_does():
    request, answer = (EnrolTopic("home", "pi", part) for part in ("request", "answer"))
    assert [matches(one, str(request)) for one in authority_filters("home")] == [True]
    assert [matches(one, str(answer)) for one in authority_filters("home")] == [False]
    for heard in (*server_filters("home"), *device_filters("home", "pi")):
        assert not matches(heard, str(request))
        assert not matches(heard, str(answer))


def test_topics_are_those_that_the_broker_rules_name():
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
def test_any_text_is_a_topic_or_refused(text):
    for topic in (text, f"fed/v1/{text}", f"fed/v1/home/devices/{text}"):
        with contextlib.suppress(PeerError):
            assert str(parse_topic(topic)) == topic


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "0", "x" * 64])
def test_names_that_may_stand_in_a_topic(name):
    assert is_name(name)


@pytest.mark.parametrize("name", ["", ".a", "-a", "a b", "a/b", "a#", "a+", "é", "x" * 65, "a\n", "a\0"])
def test_names_that_may_not(name):
    assert not is_name(name)


@pytest.mark.parametrize("channel", Channel)
def test_each_side_hears_what_is_meant_for_it_and_once(channel):
    topic, down = str(DeviceTopic("home", "pi", channel)), channel.startswith("down/")
    heard = [matches(one, topic) for one in device_filters("home", "pi")]
    assert heard.count(True) == (1 if down else 0)
    assert [matches(one, topic) for one in server_filters("home")] == [not down]
    assert not any(matches(one, topic) for one in device_filters("home", "other"))


def test_every_device_hears_the_state_and_the_server_does_not():
    topic = str(StateTopic("home"))
    assert sum(matches(one, topic) for one in device_filters("home", "pi")) == 1
    assert not any(matches(one, topic) for one in server_filters("home"))


def test_a_rollout_hears_births_and_what_is_said_to_it_and_nothing_of_the_training():
    heard = {
        channel
        for channel in Channel
        if any(matches(one, str(DeviceTopic("home", "pi", channel))) for one in rollout_filters("home"))
    }
    assert heard == {Channel.BIRTH, Channel.UP_ROLLOUT}
