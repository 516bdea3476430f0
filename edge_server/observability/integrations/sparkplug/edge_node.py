"""A Sparkplug edge node as a pure state machine: births, deaths, data and their sequence numbers.

Sparkplug specification 3.0.0, sections 4.2 (messages), 5.4 to 5.7 (sessions), 5.16 (data), 5.17 (rebirth) and
6.4 (payloads):

- NBIRTH has `seq` 0; each later message adds one, and 0 follows 255; NDEATH has no `seq`;
- NBIRTH and NDEATH of a connection have the same `bdSeq`; the next connection adds one, and 0 follows 255;
- DBIRTHs follow NBIRTH in the same connection; data messages carry only metrics that a birth announced,
  and only changed ones;
- a rebirth repeats all births with the `bdSeq` of the connection.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from edge_server.config.units import clean
from edge_server.observability.integrations.sparkplug.payload import (
    Datatype,
    Metric,
    Payload,
    Scalar,
    encode_payload,
)
from edge_server.observability.snapshot import DeviceView, Snapshot

Value = tuple[Datatype, Scalar]
Metrics = Mapping[str, Value]
MAX_TEXT = 200


def node_metrics(snapshot: Snapshot) -> Metrics:
    """The federation: bytes over the devices' links, accuracy (0 to 1) on the server's test data."""
    tested = [record.test_accuracy for record in snapshot.history if record.test_accuracy is not None]
    online = [view for view in snapshot.devices if view.state != "offline"]
    return {
        "Run/Name": _text(snapshot.run),
        "Run/Phase": _text(snapshot.phase),
        "Run/Round": _count(snapshot.round),
        "Run/Rounds": _count(snapshot.rounds),
        "Run/Accuracy": _share(tested[-1] if tested else None),
        "Devices/Online": _count(len(online)),
        "Devices/Known": _count(len(snapshot.devices)),
        "Traffic/Uplink bytes": _count(sum(view.uplink_bytes for view in snapshot.devices)),
        "Traffic/Downlink bytes": _count(sum(view.downlink_bytes for view in snapshot.devices)),
        "Refusals": _count(sum(sum(view.refused.values()) for view in snapshot.devices)),
    }


def device_metrics(snapshot: Snapshot) -> dict[str, Metrics]:
    return {view.device: _of(view, snapshot.round) for view in snapshot.devices if view.state != "offline"}


def _of(view: DeviceView, round_number: int) -> Metrics:
    memory = None if view.board is None else view.board.memory_bytes
    machine = None if view.profile is None else (view.profile.machine or view.profile.processor)
    return {
        "State": _text(view.state),
        "Reason": _text(view.reason or view.ineligible_because),
        "Round": _count(round_number),
        "Rounds": _count(view.rounds),
        "Tier": _count(view.tier),
        "Ratio": _number(view.ratio),
        "Accuracy": _share(view.accuracy),
        "Board/Temperature": _number(None if view.celsius is None else round(view.celsius, 1)),
        "Board/Battery": _number(None if view.battery is None else round(view.battery, 2)),
        "Board/Memory bytes": _count(memory),
        "Traffic/Uplink bytes": _count(view.uplink_bytes),
        "Traffic/Downlink bytes": _count(view.downlink_bytes),
        "Refusals": _count(sum(view.refused.values())),
        "Properties/Hardware Model": _text(machine),
    }


def _text(value: str | None) -> Value:
    return Datatype.STRING, None if value is None else clean(value)[:MAX_TEXT]


def _count(value: int | None) -> Value:
    return Datatype.UINT64, value


def _number(value: float | None) -> Value:
    return Datatype.DOUBLE, None if value is None else float(value)


def _share(value: float | None) -> Value:
    return _number(None if value is None else round(value, 4))


NAMESPACE = "spBv1.0"
BD_SEQ, REBIRTH = "bdSeq", "Node Control/Rebirth"
NUMBERS = 256
SPACING_MS, MAX_DATA = 1000, 200
"""Minimum milliseconds between two data messages of one device; maximum data messages of devices per step."""
REBIRTH_MS = 5000  # Minimum milliseconds between two births: many hosts may ask for a rebirth at once


@dataclass(frozen=True)
class Connected:
    """Event: connected; `bd_seq` is that of this connection's will."""

    bd_seq: int


@dataclass(frozen=True)
class Disconnected:
    """Event: the connection is lost."""


@dataclass(frozen=True)
class Observed:
    """Event: the current metrics of the node and of the connected devices."""

    node: Metrics
    devices: Mapping[str, Metrics]


@dataclass(frozen=True)
class RebirthAsked:
    """Event: a host asks for all births."""


@dataclass(frozen=True)
class Leaving:
    """Event: the node disconnects."""


Event = Connected | Disconnected | Observed | RebirthAsked | Leaving


@dataclass(frozen=True)
class Publish:
    """Command: publish a message, not retained."""

    topic: str
    payload: bytes
    qos: int = 0


@dataclass(frozen=True)
class EdgeNode:
    """What was published in this connection: `node` and `devices` hold the published metrics.

    `bd_seq` is None without a connection, `node` is None before its birth; `seq` is the next message's
    number. `published_at` and `born_at` are in milliseconds. With `datatypes` data messages state them, too.
    """

    group: str
    name: str
    datatypes: bool = True
    latest: Observed | None = None
    bd_seq: int | None = None
    seq: int = 0
    node: Metrics | None = None
    devices: Mapping[str, Metrics] = field(default_factory=dict)
    published_at: Mapping[str, int] = field(default_factory=dict)
    born_at: int = 0
    rebirth_due: bool = False

    def topic(self, message: str, device: str | None = None) -> str:
        end = "" if device is None else f"/{device}"
        return f"{NAMESPACE}/{self.group}/{message}/{self.name}{end}"


Step = tuple[EdgeNode, list[Publish]]


def next_bd_seq(number: int) -> int:
    """The `bdSeq` of a connection that follows `number` earlier ones."""
    return number % NUMBERS


def death(node: EdgeNode, bd_seq: int, now_ms: int) -> Publish:
    """The node's death message, which has no `seq` (section 6.4.25)."""
    metric = Metric(BD_SEQ, bd_seq, Datatype.INT64)
    payload = encode_payload(Payload(now_ms, (metric,)), (Datatype.INT64,))
    return Publish(node.topic("NDEATH"), payload, qos=1)


def step(node: EdgeNode, event: Event, now_ms: int) -> Step:
    """Apply one event; `now_ms` are milliseconds since 1970."""
    match event:
        case Connected(bd_seq):
            return _publish_due(_unborn(replace(node, bd_seq=bd_seq)), now_ms)
        case Disconnected():
            return _unborn(replace(node, bd_seq=None)), []
        case Observed():
            return _publish_due(replace(node, latest=event), now_ms)
        case RebirthAsked():
            return _publish_due(replace(node, rebirth_due=node.node is not None), now_ms)
        case Leaving():
            messages = [] if node.bd_seq is None else [death(node, node.bd_seq, now_ms)]
            return _unborn(replace(node, bd_seq=None)), messages


def _unborn(node: EdgeNode) -> EdgeNode:
    return replace(node, node=None, devices={}, published_at={}, rebirth_due=False)


def _publish_due(node: EdgeNode, now_ms: int) -> Step:
    if node.bd_seq is None or node.latest is None:
        return node, []
    again = node.rebirth_due and now_ms >= node.born_at + REBIRTH_MS
    if node.node is None or again or node.node.keys() != node.latest.node.keys():
        return _publish_births(node, node.latest, node.bd_seq, now_ms)
    if node.rebirth_due:
        return node, []  # no data between the request for a rebirth and the births (section 5.17)
    return _publish_changes(node, node.latest, now_ms)


def _publish_births(node: EdgeNode, latest: Observed, bd_seq: int, now_ms: int) -> Step:
    control: Metrics = {BD_SEQ: (Datatype.INT64, bd_seq), REBIRTH: (Datatype.BOOLEAN, False)}
    node = replace(_unborn(node), seq=0, node=latest.node, born_at=now_ms)
    node, birth = _number_message(node, "NBIRTH", None, {**control, **latest.node}, now_ms)
    messages = [birth]
    for device in sorted(latest.devices):
        node, birth = _device_birth(node, device, latest.devices[device], now_ms)
        messages.append(birth)
    return node, messages


def _device_birth(node: EdgeNode, device: str, metrics: Metrics, now_ms: int) -> tuple[EdgeNode, Publish]:
    node, birth = _number_message(node, "DBIRTH", device, metrics, now_ms)
    return _with_published(node, device, metrics, now_ms), birth


def _publish_changes(node: EdgeNode, latest: Observed, now_ms: int) -> Step:
    """Publish deaths and births of devices, then changed metrics, those published longest ago first."""
    messages: list[Publish] = []
    for device in sorted(node.devices.keys() - latest.devices.keys()):
        node, message = _number_message(node, "DDEATH", device, {}, now_ms)
        left = {name: metrics for name, metrics in node.devices.items() if name != device}
        node = replace(node, devices=left)
        messages.append(message)
    for device, metrics in sorted(latest.devices.items()):
        known = node.devices.get(device)
        if known is None or known.keys() != metrics.keys():
            node, message = _device_birth(node, device, metrics, now_ms)
            messages.append(message)
    if new := _differences(node.node or {}, latest.node):
        node, message = _number_message(node, "NDATA", None, new, now_ms)
        node = replace(node, node=latest.node)
        messages.append(message)
    for device in _due(node, latest, now_ms):
        new = _differences(node.devices[device], latest.devices[device])
        node, message = _number_message(node, "DDATA", device, new, now_ms)
        node = _with_published(node, device, latest.devices[device], now_ms)
        messages.append(message)
    return node, messages


def _due(node: EdgeNode, latest: Observed, now_ms: int) -> list[str]:
    changed = [device for device, metrics in latest.devices.items() if metrics != node.devices.get(device)]
    waited = [device for device in changed if now_ms >= node.published_at.get(device, 0) + SPACING_MS]
    return sorted(waited, key=lambda device: (node.published_at.get(device, 0), device))[:MAX_DATA]


def _differences(before: Metrics, now: Metrics) -> dict[str, Value]:
    return {name: value for name, value in now.items() if before.get(name) != value}


def _with_published(node: EdgeNode, device: str, metrics: Metrics, now_ms: int) -> EdgeNode:
    return replace(
        node, devices={**node.devices, device: metrics}, published_at={**node.published_at, device: now_ms}
    )


def _number_message(
    node: EdgeNode, message: str, device: str | None, metrics: Metrics, now_ms: int
) -> tuple[EdgeNode, Publish]:
    """A message with the next number; births must state what their values are (section 6.4.6)."""
    stated = node.datatypes or message.endswith("BIRTH")
    listed = tuple(Metric(name, value, kind if stated else None) for name, (kind, value) in metrics.items())
    payload = Payload(now_ms, listed, node.seq)
    data = encode_payload(payload, (kind for kind, _ in metrics.values()))
    return replace(node, seq=(node.seq + 1) % NUMBERS), Publish(node.topic(message, device), data)
