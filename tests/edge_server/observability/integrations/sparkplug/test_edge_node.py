"""The message sequence, checked by a strict host (Sparkplug 3.0.0; docstrings name the sections)."""

import base64
import json
import random
import shutil
import subprocess

import pytest

from edge_server.observability.integrations.sparkplug.edge_node import (
    MAX_DATA,
    REBIRTH_MS,
    SPACING_MS,
    Connected,
    Disconnected,
    EdgeNode,
    Leaving,
    Observed,
    RebirthAsked,
    death,
    device_metrics,
    next_bd_seq,
    node_metrics,
    step,
)
from edge_server.observability.integrations.sparkplug.payload import Datatype, decode_payload
from tests.edge_server.observability.integrations.home_assistant.moments import (
    GARAGE,
    KITCHEN,
    named,
    snapshot,
)
from tests.edge_server.observability.integrations.sparkplug.host import Host

NODE_BINARY = shutil.which("node") or ""
NODE = {"Round": (Datatype.UINT64, 1)}


def metrics(state: str = "idle", round_number: int = 1):
    return {"State": (Datatype.STRING, state), "Round": (Datatype.UINT64, round_number)}


class World:
    """A node, its clock, and a host that receives every message."""

    def __init__(self) -> None:
        self.node, self.now, self.host = EdgeNode("Plant", "home"), 1_000_000, Host()

    def do(self, event, *, after_ms: int = SPACING_MS) -> list[str]:
        """Step, pass the sent messages to the host, and return their kinds."""
        self.now += after_ms
        self.node, sent = step(self.node, event, self.now)
        for message in sent:
            self.host.receive(message.topic, message.payload)
        return [message.topic.removeprefix("spBv1.0/Plant/").replace("/home", "") for message in sent]

    def observe(self, node=NODE, **devices) -> list[str]:
        return self.do(Observed(node, {name.replace("_", "-"): value for name, value in devices.items()}))


@pytest.fixture
def world() -> World:
    return World()


def test_births_follow_the_connection_and_the_node_precedes_its_devices(world) -> None:
    """5.4 and 5.6: NBIRTH with seq 0, then a DBIRTH for each device, 1 and 2."""
    assert world.observe(pi_1=metrics(), pi_2=metrics()) == []
    assert world.do(Connected(4)) == ["NBIRTH", "DBIRTH/pi-1", "DBIRTH/pi-2"]
    assert (world.host.bd_seq, world.host.last_seq, set(world.host.devices)) == (4, 2, {"pi-1", "pi-2"})


def test_no_birth_is_sent_before_the_first_observation(world) -> None:
    assert world.do(Connected(0)) == []
    assert world.observe() == ["NBIRTH"]


def test_only_changes_are_sent(world) -> None:
    """5.16: data by exception."""
    world.do(Connected(0))
    world.observe(pi_1=metrics(), pi_2=metrics())
    assert world.observe(pi_1=metrics(), pi_2=metrics()) == []
    assert world.observe(pi_1=metrics("training"), pi_2=metrics()) == ["DDATA/pi-1"]
    assert world.host.devices["pi-1"] == {"State": "training", "Round": 1}
    assert world.observe({"Round": (Datatype.UINT64, 2)}, pi_1=metrics("training"), pi_2=metrics()) == [
        "NDATA"
    ]
    assert world.host.values == {"Round": 2}


def test_the_number_after_255_is_0(world) -> None:
    """4.2, 6.4.5: seq counts 0 to 255 over all messages of the node."""
    world.do(Connected(0))
    world.observe(pi_1=metrics())
    for number in range(2, 600):
        assert world.observe(pi_1=metrics(round_number=number)) == ["DDATA/pi-1"]
    # 600 messages so far; NBIRTH has seq 0, so the last has 599 = 2 x 256 + 87.
    assert world.host.last_seq == 599 - 2 * 256


def test_a_lost_device_dies_and_is_born_again(world) -> None:
    """5.7: DDEATH for a lost device; no data follows until its next DBIRTH."""
    world.do(Connected(0))
    world.observe(pi_1=metrics(), pi_2=metrics())
    assert world.observe(pi_2=metrics()) == ["DDEATH/pi-1"]
    assert world.observe(pi_2=metrics()) == []
    assert world.observe(pi_1=metrics("training"), pi_2=metrics()) == ["DBIRTH/pi-1"]


def test_a_rebirth_repeats_all_births_with_the_same_bd_seq(world) -> None:
    """5.17: the whole sequence of births; no data between the request and the births."""
    world.do(Connected(9))
    world.observe(pi_1=metrics())
    world.observe(pi_1=metrics("training"))
    kinds = world.do(RebirthAsked(), after_ms=REBIRTH_MS)
    assert kinds == ["NBIRTH", "DBIRTH/pi-1"]
    assert (world.host.bd_seq, world.host.last_seq) == (9, 1)
    assert world.host.devices["pi-1"]["State"] == "training"


def test_repeated_rebirth_requests_get_one_rebirth_and_no_data_before_it(world) -> None:
    world.do(Connected(0))
    world.observe(pi_1=metrics())
    for number in range(4):
        assert world.do(RebirthAsked(), after_ms=10) == []
        assert world.do(Observed(NODE, {"pi-1": metrics(round_number=number + 2)}), after_ms=10) == []
    assert world.do(Observed(NODE, {"pi-1": metrics()}), after_ms=REBIRTH_MS) == ["NBIRTH", "DBIRTH/pi-1"]
    assert world.observe(pi_1=metrics()) == []


def test_a_rebirth_request_before_the_first_birth_has_no_effect(world) -> None:
    assert world.do(RebirthAsked()) == []
    world.do(Connected(0))
    assert world.observe() == ["NBIRTH"]
    assert world.observe() == []


def test_after_a_reconnect_all_births_are_sent_with_the_next_bd_seq(world) -> None:
    """5.4: bdSeq increases by one at each CONNECT; nothing is sent while disconnected."""
    world.do(Connected(255))
    world.observe(pi_1=metrics())
    world.do(Disconnected())
    assert world.observe(pi_1=metrics("training")) == []
    assert world.do(Connected(next_bd_seq(256))) == ["NBIRTH", "DBIRTH/pi-1"]
    assert (world.host.bd_seq, world.host.last_seq) == (0, 1)


def test_the_will_and_the_final_death_have_the_bd_seq_of_their_birth_and_no_seq(world) -> None:
    """4.2 and 6.4.25."""
    world.do(Connected(7))
    world.observe(pi_1=metrics())
    will = death(world.node, 7, world.now)
    assert (will.topic, will.qos) == ("spBv1.0/Plant/NDEATH/home", 1)
    payload = decode_payload(will.payload)
    assert (payload.seq, [(metric.name, metric.value, metric.datatype) for metric in payload.metrics]) == (
        None,
        [("bdSeq", 7, Datatype.INT64)],
    )
    assert world.do(Leaving()) == ["NDEATH"]
    assert not world.host.online
    assert world.observe(pi_1=metrics("training")) == []
    assert world.do(Leaving()) == []


def test_a_late_will_of_an_earlier_connection_is_ignored(world) -> None:
    world.do(Connected(1))
    world.observe()
    world.do(Disconnected())
    world.do(Connected(2))
    world.host.receive("spBv1.0/Plant/NDEATH/home", death(world.node, 1, world.now).payload)
    assert world.host.online


def test_a_new_metric_leads_to_another_birth(world) -> None:
    """5.16: a birth includes every metric that will ever be sent."""
    world.do(Connected(0))
    world.observe(pi_1=metrics())
    more = {**metrics(), "Load": (Datatype.DOUBLE, 0.5)}
    assert world.observe(pi_1=more) == ["DBIRTH/pi-1"]
    assert world.observe({**NODE, "Phase": (Datatype.STRING, "x")}, pi_1=more) == ["NBIRTH", "DBIRTH/pi-1"]


def test_changes_of_a_thousand_devices_are_sent_in_turn(world) -> None:
    names = [f"pi-{number}" for number in range(1000)]
    world.do(Connected(0))
    world.do(Observed(NODE, {name: metrics() for name in names}))
    changed = Observed(NODE, {name: metrics("training") for name in names})
    sizes = [len(world.do(changed)) for _ in range(6)]
    assert sizes == [MAX_DATA] * 5 + [0]
    assert all(device["State"] == "training" for device in world.host.devices.values())


def test_any_sequence_of_events_follows_the_rules() -> None:
    """A strict host follows 1,000 random events; at the end its state is the current one."""
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


def test_the_metric_names_do_not_depend_on_the_known_values() -> None:
    """Metrics unknown at birth are published as null, so that they can be sent later."""
    poor, rich = snapshot(named("pi", board=None, accuracy=None)), snapshot(KITCHEN, GARAGE)
    assert node_metrics(poor).keys() == node_metrics(rich).keys()
    (pi,), found = device_metrics(poor).values(), device_metrics(rich)
    assert set(found) == {"pi-4.kitchen"}, "an offline device has no metrics"
    assert pi.keys() == found["pi-4.kitchen"].keys()
    assert pi["Board/Temperature"] == (Datatype.DOUBLE, None)
    assert found["pi-4.kitchen"]["Board/Temperature"] == (Datatype.DOUBLE, 52.3)
    assert found["pi-4.kitchen"]["Accuracy"] == (Datatype.DOUBLE, 0.9125)
    assert node_metrics(rich)["Devices/Online"] == (Datatype.UINT64, 1)
    assert node_metrics(rich)["Refusals"] == (Datatype.UINT64, 2)


def npm_values(data: bytes) -> list[object]:
    """What npm's sparkplug-payload 1.0.3 reads: it looks for a value in the field of the stated datatype."""
    found = decode_payload(data).metrics
    return [None if metric.datatype is None else metric.value for metric in found]


@pytest.mark.parametrize(("datatypes", "values"), [(True, ["training", 2]), (False, [None, None])])
def test_data_state_their_types_unless_the_federation_leaves_them_out(datatypes: bool, values: list) -> None:
    node = EdgeNode("Plant", "home", datatypes)
    node, _ = step(node, Connected(0), 0)
    node, _ = step(node, Observed(NODE, {"pi-1": metrics()}), 1)
    node, (sent,) = step(node, Observed(NODE, {"pi-1": metrics("training", 2)}), 1 + SPACING_MS)
    assert npm_values(sent.payload) == values


DECODER = """
const payloads = JSON.parse(require("fs").readFileSync(0));
const { decodePayload } = require("sparkplug-payload").get("spBv1.0");
console.log(JSON.stringify(payloads.map((each) =>
  decodePayload(Buffer.from(each, "base64")).metrics.map((metric) => metric.value))));
"""


def test_the_decoder_of_npm_reads_data() -> None:
    """Needs node and `npm install sparkplug-payload`, with NODE_PATH at its node_modules."""
    if not has_decoder():
        pytest.skip("no sparkplug-payload of npm")
    node, _ = step(EdgeNode("Plant", "home"), Connected(0), 0)
    node, births = step(node, Observed(NODE, {"pi-1": metrics()}), 1)
    node, (data,) = step(node, Observed(NODE, {"pi-1": metrics("training")}), 1 + SPACING_MS)
    encoded = json.dumps([base64.b64encode(sent.payload).decode() for sent in (*births, data)])
    command = [NODE_BINARY, "-e", DECODER]
    read = subprocess.run(command, input=encoded, capture_output=True, text=True, check=True, timeout=60)
    assert json.loads(read.stdout)[-1] == ["training"]


def has_decoder() -> bool:
    probe = ["-e", 'require("sparkplug-payload")']
    return bool(NODE_BINARY) and subprocess.run([NODE_BINARY, *probe], capture_output=True).returncode == 0
