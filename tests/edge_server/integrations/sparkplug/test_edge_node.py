"""The rules of the sequence, as a host by the book sees them (Sparkplug 3.0.0; sections beside each test)."""

import random

import pytest

from edge_server.integrations.sparkplug.edge_node import (
    MOST_DATA,
    REBIRTH_MS,
    SPACING_MS,
    Connected,
    Disconnected,
    EdgeNode,
    Leaving,
    Observed,
    RebirthAsked,
    death,
    next_bd_seq,
    step,
)
from edge_server.integrations.sparkplug.metrics import device_metrics, node_metrics
from edge_server.integrations.sparkplug.payload import Datatype, decode_payload
from tests.edge_server.integrations.home_assistant.moments import GARAGE, KITCHEN, named, snapshot
from tests.edge_server.integrations.sparkplug.host import Host

NODE = {"Round": (Datatype.UINT64, 1)}


def metrics(state: str = "idle", round_number: int = 1):
    return {"State": (Datatype.STRING, state), "Round": (Datatype.UINT64, round_number)}


class World:
    """A node, its clock, and a host that hears every message."""

    def __init__(self) -> None:
        self.node, self.now, self.host = EdgeNode("Plant", "home"), 1_000_000, Host()

    def do(self, event, *, after_ms: int = SPACING_MS) -> list[str]:
        """Step, and return which messages were sent; the host has taken them."""
        self.now += after_ms
        self.node, said = step(self.node, event, self.now)
        for one in said:
            self.host.hears(one.topic, one.payload)
        return [one.topic.removeprefix("spBv1.0/Plant/").replace("/home", "") for one in said]

    def sees(self, node=NODE, **devices) -> list[str]:
        return self.do(Observed(node, {name.replace("_", "-"): value for name, value in devices.items()}))


@pytest.fixture
def world() -> World:
    return World()


def test_births_come_after_the_connection_and_the_nodes_before_its_devices(world) -> None:
    """5.4 and 5.6: NBIRTH with seq 0, then a DBIRTH for each device, 1 and 2."""
    assert world.sees(pi_1=metrics(), pi_2=metrics()) == []
    assert world.do(Connected(4)) == ["NBIRTH", "DBIRTH/pi-1", "DBIRTH/pi-2"]
    assert (world.host.bd_seq, world.host.last_seq, set(world.host.devices)) == (4, 2, {"pi-1", "pi-2"})


def test_without_anything_known_nothing_is_announced(world) -> None:
    assert world.do(Connected(0)) == []
    assert world.sees() == ["NBIRTH"]


def test_only_what_has_changed_is_said(world) -> None:
    """5.16: data by exception."""
    world.do(Connected(0))
    world.sees(pi_1=metrics(), pi_2=metrics())
    assert world.sees(pi_1=metrics(), pi_2=metrics()) == []
    assert world.sees(pi_1=metrics("training"), pi_2=metrics()) == ["DDATA/pi-1"]
    assert world.host.devices["pi-1"] == {"State": "training", "Round": 1}
    assert world.sees({"Round": (Datatype.UINT64, 2)}, pi_1=metrics("training"), pi_2=metrics()) == ["NDATA"]
    assert world.host.values == {"Round": 2}


def test_the_number_after_255_is_0(world) -> None:
    """4.2, 6.4.5: seq counts 0 to 255 over all messages of the node."""
    world.do(Connected(0))
    world.sees(pi_1=metrics())
    for number in range(2, 600):
        assert world.sees(pi_1=metrics(round_number=number)) == ["DDATA/pi-1"]
    # 600 messages so far, NBIRTH's 0 the first: the last has 599 = 2 x 256 + 87.
    assert world.host.last_seq == 599 - 2 * 256


def test_a_lost_device_dies_and_is_born_again(world) -> None:
    """5.7: DDEATH for a device that is lost; after it no data until its next DBIRTH."""
    world.do(Connected(0))
    world.sees(pi_1=metrics(), pi_2=metrics())
    assert world.sees(pi_2=metrics()) == ["DDEATH/pi-1"]
    assert world.sees(pi_2=metrics()) == []
    assert world.sees(pi_1=metrics("training"), pi_2=metrics()) == ["DBIRTH/pi-1"]


def test_a_rebirth_says_everything_again_with_the_same_bd_seq(world) -> None:
    """5.17: the whole sequence of births; no data between what asks for it and it."""
    world.do(Connected(9))
    world.sees(pi_1=metrics())
    world.sees(pi_1=metrics("training"))
    said = world.do(RebirthAsked(), after_ms=REBIRTH_MS)
    assert said == ["NBIRTH", "DBIRTH/pi-1"]
    assert (world.host.bd_seq, world.host.last_seq) == (9, 1)
    assert world.host.devices["pi-1"]["State"] == "training"


def test_a_host_that_asks_all_the_time_gets_no_flood_and_no_data_meanwhile(world) -> None:
    world.do(Connected(0))
    world.sees(pi_1=metrics())
    for number in range(4):
        assert world.do(RebirthAsked(), after_ms=10) == []
        assert world.do(Observed(NODE, {"pi-1": metrics(round_number=number + 2)}), after_ms=10) == []
    assert world.do(Observed(NODE, {"pi-1": metrics()}), after_ms=REBIRTH_MS) == ["NBIRTH", "DBIRTH/pi-1"]
    assert world.sees(pi_1=metrics()) == []


def test_a_rebirth_before_the_first_birth_asks_for_nothing(world) -> None:
    assert world.do(RebirthAsked()) == []
    world.do(Connected(0))
    assert world.sees() == ["NBIRTH"]
    assert world.sees() == []


def test_after_a_lost_connection_all_is_announced_anew_with_the_next_bd_seq(world) -> None:
    """5.4: bdSeq one more at each CONNECT; nothing is said in between."""
    world.do(Connected(255))
    world.sees(pi_1=metrics())
    world.do(Disconnected())
    assert world.sees(pi_1=metrics("training")) == []
    assert world.do(Connected(next_bd_seq(256))) == ["NBIRTH", "DBIRTH/pi-1"]
    assert (world.host.bd_seq, world.host.last_seq) == (0, 1)


def test_the_will_and_the_farewell_bear_the_bd_seq_of_their_birth_and_no_seq(world) -> None:
    """4.2 and 6.4.25."""
    world.do(Connected(7))
    world.sees(pi_1=metrics())
    will = death(world.node, 7, world.now)
    assert (will.topic, will.qos) == ("spBv1.0/Plant/NDEATH/home", 1)
    payload = decode_payload(will.payload)
    assert (payload.seq, [(metric.name, metric.value, metric.datatype) for metric in payload.metrics]) == (
        None,
        [("bdSeq", 7, Datatype.INT64)],
    )
    assert world.do(Leaving()) == ["NDEATH"]
    assert not world.host.online
    assert world.sees(pi_1=metrics("training")) == []
    assert world.do(Leaving()) == []


def test_a_late_will_of_an_earlier_connection_ends_nothing(world) -> None:
    world.do(Connected(1))
    world.sees()
    world.do(Disconnected())
    world.do(Connected(2))
    world.host.hears("spBv1.0/Plant/NDEATH/home", death(world.node, 1, world.now).payload)
    assert world.host.online


def test_a_metric_that_no_birth_has_announced_leads_to_another_birth(world) -> None:
    """5.16: a birth includes every metric that will ever be said."""
    world.do(Connected(0))
    world.sees(pi_1=metrics())
    more = {**metrics(), "Load": (Datatype.DOUBLE, 0.5)}
    assert world.sees(pi_1=more) == ["DBIRTH/pi-1"]
    assert world.sees({**NODE, "Phase": (Datatype.STRING, "x")}, pi_1=more) == ["NBIRTH", "DBIRTH/pi-1"]


def test_a_thousand_devices_that_change_are_told_of_in_turn(world) -> None:
    names = [f"pi-{number}" for number in range(1000)]
    world.do(Connected(0))
    world.do(Observed(NODE, {name: metrics() for name in names}))
    changed = Observed(NODE, {name: metrics("training") for name in names})
    sizes = [len(world.do(changed)) for _ in range(6)]
    assert sizes == [MOST_DATA] * 5 + [0]
    assert all(device["State"] == "training" for device in world.host.devices.values())


def test_any_course_of_events_keeps_the_rules() -> None:
    """A host by the book follows 1,000 random events; at the end it knows what there is."""
    rng, world, connection = random.Random(7), World(), 0
    connected = False
    for _ in range(1000):
        devices = {
            f"pi-{number}": metrics(rng.choice(["idle", "training"]), rng.randint(1, 3))
            for number in range(5)
            if rng.random() < 0.8
        }
        match rng.randrange(12):
            case 0 if connected:
                world.do(Disconnected(), after_ms=5)
                connected = False
            case 1 | 2 if not connected:
                world.do(Connected(next_bd_seq(connection)), after_ms=5)
                connected, connection = True, connection + 1
            case 3:
                world.do(RebirthAsked(), after_ms=rng.choice([5, 6000]))
            case _:
                world.do(Observed({"Round": (Datatype.UINT64, rng.randint(1, 3))}, devices), after_ms=500)
    if not connected:
        world.do(Connected(next_bd_seq(connection)))
    world.do(Observed(NODE, {"pi-1": metrics()}), after_ms=REBIRTH_MS)
    world.do(Observed(NODE, {"pi-1": metrics()}), after_ms=REBIRTH_MS)
    assert world.host.devices == {"pi-1": {"State": "idle", "Round": 1}}
    assert {"NBIRTH", "NDATA", "DBIRTH", "DDATA", "DDEATH"} <= set(world.host.kinds)


def test_the_metrics_of_a_run_are_the_same_names_whatever_is_known() -> None:
    """What a board cannot tell is null at birth, so that it may be told later."""
    poor, rich = snapshot(named("pi", board=None, accuracy=None)), snapshot(KITCHEN, GARAGE)
    assert node_metrics(poor).keys() == node_metrics(rich).keys()
    (one,), found = device_metrics(poor).values(), device_metrics(rich)
    assert set(found) == {"pi-4.kitchen"}, "an offline device is none"
    assert one.keys() == found["pi-4.kitchen"].keys()
    assert one["Board/Temperature"] == (Datatype.DOUBLE, None)
    assert found["pi-4.kitchen"]["Board/Temperature"] == (Datatype.DOUBLE, 52.3)
    assert found["pi-4.kitchen"]["Accuracy"] == (Datatype.DOUBLE, 0.9125)
    assert node_metrics(rich)["Devices/Online"] == (Datatype.UINT64, 1)
    assert node_metrics(rich)["Refusals"] == (Datatype.UINT64, 2)
