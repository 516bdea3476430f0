"""Discovery by Home Assistant: messages are compared with recordings and its published schema."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import ValidationError

from edge_server.config.object_store import identifier, name_of
from edge_server.observability.integrations.home_assistant import states
from edge_server.observability.integrations.home_assistant.model_versions import ModelVersions
from edge_server.observability.integrations.home_assistant.topics import HomeAssistantTopics
from schemas.values import CapabilityProfile
from tests.edge_server.observability.integrations.home_assistant.moments import (
    GARAGE,
    KITCHEN,
    PLACES,
    moment,
    named,
    snapshot,
)
from tests.edge_server.observability.integrations.home_assistant.published import discovery, update_state

GOLDEN = Path(__file__).with_name("golden")
UNDER_WAY = {
    "pi-4.kitchen": states.Installation("pi-4.kitchen", 40, "v2: pi-4.kitchen compares it with what it runs.")
}


def messages(*devices, **more):
    return states.DeviceMessages(PLACES).wanted_messages(moment(*devices, **more), gone=frozenset(), away=())


@pytest.mark.parametrize(
    ("file", "topic", "more"),
    [
        ("config-kitchen.json", PLACES.config("pi-4.kitchen"), {}),
        ("config-garage.json", PLACES.config("pi_garage"), {}),
        ("state-kitchen.json", PLACES.of("pi-4.kitchen", "state"), {}),
        ("state-garage.json", PLACES.of("pi_garage", "state"), {}),
        ("update-kitchen.json", PLACES.of("pi-4.kitchen", "update"), {}),
        ("update-under-way.json", PLACES.of("pi-4.kitchen", "update"), {"installations": UNDER_WAY}),
        ("update-garage.json", PLACES.of("pi_garage", "update"), {}),
    ],
)
def test_messages_equal_the_recorded_ones(file, topic, more) -> None:
    assert json.loads(messages(KITCHEN, GARAGE, **more)[topic]) == json.loads((GOLDEN / file).read_text())


@pytest.mark.parametrize("view", [KITCHEN, GARAGE], ids=lambda view: view.device)
def test_home_assistant_accepts_the_discovery_messages(view) -> None:
    found = discovery(PLACES.config(view.device), states.device_config(PLACES, view))
    assert found.device.name == view.device
    assert [entry.topic for entry in found.availability] == [
        "fed/v1/home/home/status",
        f"fed/v1/home/home/devices/{view.device}/availability",
    ]
    assert found.availability_mode == "all"
    update = found.components["model"]
    assert (update.platform, update.command_topic) == (
        "update",
        f"fed/v1/home/home/devices/{view.device}/install",
    )


def test_every_sensor_has_its_key_in_the_state() -> None:
    found = discovery(PLACES.config("pi-4.kitchen"), states.device_config(PLACES, KITCHEN))
    state = json.loads(messages(KITCHEN)[PLACES.of("pi-4.kitchen", "state")])
    sensors = [component for component in found.components.values() if component.platform == "sensor"]
    keys = [sensor.value_template.removeprefix("{{ value_json.").removesuffix(" }}") for sensor in sensors]
    assert keys == ["state", "round", "accuracy", "celsius", "battery", "memory_mb"]
    # From 52.34 degrees, battery 0.875, 312,400,000 bytes and accuracy 0.9125.
    assert [state[key] for key in keys] == ["training", 5, 91.25, 52.3, 88, 312]


def test_a_value_that_a_board_does_not_report_has_no_sensor() -> None:
    found = discovery(PLACES.config("pi_garage"), states.device_config(PLACES, GARAGE))
    assert set(found.components) == {"state", "round", "accuracy", "celsius", "model"}


def test_no_two_devices_share_a_topic_or_an_identifier() -> None:
    names = ["a.b", "a_b", "a_db", "a__b", "a-b", "a._b", "a_.b"]
    found = [discovery(PLACES.config(name), states.device_config(PLACES, named(name))) for name in names]
    assert len({PLACES.config(name) for name in names}) == len(names)
    assert len({entity.unique_id for config in found for entity in config.components.values()}) == 7 * len(
        names
    )
    assert [name_of(identifier(name)) for name in names] == names


def test_text_from_a_device_never_becomes_a_template() -> None:
    """Home Assistant must not evaluate a device's board name or reason as a template."""
    evil = "{{ states('lock.door') }}{% set x = 1 %}\n"
    view = replace(KITCHEN, reason=evil, profile=CapabilityProfile(machine=evil), state="training")
    found = messages(view)
    config = discovery(PLACES.config(view.device), found[PLACES.config(view.device)])
    # published.KeyTemplate refuses every template except a single key.
    assert config.device.model == evil.replace("\n", " ")
    topics = [config.state_topic, *(component.state_topic for component in config.components.values())]
    assert not any("{" in topic for topic in topics)
    assert json.loads(found[PLACES.of(view.device, "state")])["reason"] == evil.replace("\n", " ")


def test_the_schema_here_refuses_messages_that_home_assistant_drops_or_refuses() -> None:
    good = json.loads(states.device_config(PLACES, KITCHEN))
    topic = PLACES.config(KITCHEN.device)
    wrong = {
        "unknown key": {**good, "cmps": {"state": {**good["cmps"]["state"], "precision": 1}}},
        "unit": {**good, "cmps": {"celsius": {**good["cmps"]["celsius"], "unit_of_meas": "%"}}},
        "no unique id": {**good, "cmps": {"model": {"p": "update", "name": "Model"}}},
        "template": {**good, "cmps": {"state": {**good["cmps"]["state"], "val_tpl": "{{ now() }}"}}},
        "wildcard": {**good, "stat_t": "fed/#"},
    }
    for config in wrong.values():
        with pytest.raises(ValidationError):
            discovery(topic, json.dumps(config).encode())
    with pytest.raises(AssertionError):
        discovery(f"homeassistant/device/home/{KITCHEN.device}/config", json.dumps(good).encode())


def test_availability_follows_the_state_of_a_device() -> None:
    found = messages(KITCHEN, GARAGE)
    assert found[PLACES.of("pi-4.kitchen", "availability")] == states.ONLINE
    assert found[PLACES.of("pi_garage", "availability")] == states.OFFLINE


def test_removed_devices_are_cleared_and_no_longer_published() -> None:
    found = states.DeviceMessages(PLACES).wanted_messages(
        moment(KITCHEN, GARAGE), gone=frozenset({"pi_garage"}), away=("pi-5",)
    )
    assert not [topic for topic in found if "garage" in topic]
    assert found[PLACES.of("pi-5", "availability")] == states.OFFLINE
    assert set(states.clear_devices(PLACES, ["pi_garage"]).values()) == {b""}
    assert len(states.clear_devices(PLACES, ["pi_garage"])) == 4


def test_the_update_contains_the_installed_and_latest_versions_and_the_progress() -> None:
    def reported(**more):
        return update_state(messages(KITCHEN, GARAGE, **more)[PLACES.of("pi-4.kitchen", "update")])

    assert (reported().installed_version, reported().latest_version, reported().in_progress) == (
        "v1",
        "v2",
        False,
    )
    under_way = reported(installations=UNDER_WAY)
    assert (under_way.in_progress, under_way.update_percentage) == (True, 40)


def test_without_an_approved_version_there_is_nothing_to_install() -> None:
    reported = update_state(messages(KITCHEN, versions=ModelVersions())[PLACES.of("pi-4.kitchen", "update")])
    assert reported.installed_version == reported.latest_version == "unknown"
    assert reported.release_summary == "No version is approved: edge-server models set-active names one."


def test_foreign_topics_are_ignored() -> None:
    places = HomeAssistantTopics("home", "ha/discovery")
    assert places.parse("ha/discovery/device/home/pi__1/config") == ("config", "pi_1")
    for topic in (
        "ha/discovery/device/office/pi/config",
        "ha/discovery/device/home/pi",
        "fed/v1/office/devices/pi/up/birth",
        "fed/v1/home/home/devices/+/install",
        "config",
        "",
    ):
        assert places.parse(topic) is None


def test_messages_are_reused_until_one_of_their_inputs_changes() -> None:
    """After a change of any single input, the messages equal those of a new mapper."""
    mapped, before = states.DeviceMessages(PLACES), moment(KITCHEN, GARAGE)
    mapped.wanted_messages(before, gone=frozenset(), away=())
    others = [
        before,
        moment(replace(KITCHEN, state="idle"), GARAGE),
        moment(replace(KITCHEN, board=None), GARAGE),
        states.CurrentState(snapshot(KITCHEN, GARAGE, round_number=6), before.versions),
        moment(KITCHEN, GARAGE, versions=ModelVersions("v3", {"pi-4.kitchen": "v1"})),
        moment(KITCHEN, GARAGE, versions=ModelVersions("v2", {"pi-4.kitchen": "v2"})),
        moment(KITCHEN, GARAGE, installations=UNDER_WAY),
    ]
    seen = [mapped.wanted_messages(other, gone=frozenset(), away=()) for other in others]
    assert seen == [
        states.DeviceMessages(PLACES).wanted_messages(other, gone=frozenset(), away=()) for other in others
    ]
    assert all(found != seen[0] for found in seen[1:])
