"""A Sparkplug edge node as a pure state machine: births, deaths, data, and the numbers that they bear.

Sparkplug specification 3.0.0, sections 4.2 (messages), 5.4 to 5.7 (sessions), 5.16 (data), 5.17 (rebirth) and
6.4 (payloads):

- NBIRTH has `seq` 0, whatever follows one more each time, and 0 again after 255; NDEATH has none;
- NBIRTH and NDEATH of a connection bear the same `bdSeq`, the next connection's is one more, 0 after 255;
- DBIRTHs come after NBIRTH in the same connection; only what a birth announced is said as data, and only
  when it has changed;
- a rebirth says all births again, with the `bdSeq` of the connection.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from edge_server.integrations.sparkplug.metrics import Metrics, Value
from edge_server.integrations.sparkplug.payload import Datatype, Metric, Payload, encode_payload

NAMESPACE = "spBv1.0"
BD_SEQ, REBIRTH = "bdSeq", "Node Control/Rebirth"
NUMBERS = 256
SPACING_MS, MOST_DATA = 1000, 200
"""So long at least between two data messages of one device, and so many of devices at a time."""
REBIRTH_MS = 5000
"""A rebirth that is asked for sooner after the last birth waits so long: many hosts may ask at once."""


@dataclass(frozen=True)
class Connected:
    """Event: connected, with the number that the will of this connection bears."""

    bd_seq: int


@dataclass(frozen=True)
class Disconnected:
    """Event: the connection is lost."""


@dataclass(frozen=True)
class Observed:
    """Event: how the node is now, and the devices that are connected."""

    node: Metrics
    devices: Mapping[str, Metrics]


@dataclass(frozen=True)
class RebirthAsked:
    """Event: a host has missed something and asks for all births."""


@dataclass(frozen=True)
class Leaving:
    """Event: the node goes."""


Event = Connected | Disconnected | Observed | RebirthAsked | Leaving


@dataclass(frozen=True)
class Publish:
    """Command: publish this, not retained."""

    topic: str
    payload: bytes
    qos: int = 0


@dataclass(frozen=True)
class EdgeNode:
    """What was said in this connection: `node` and `devices` as their births and data have told them.

    `bd_seq` is None while there is no connection, `node` while its birth is not said; `seq` is the next
    message's number. `said_at` and `born_at` are in milliseconds.
    """

    group: str
    name: str
    latest: Observed | None = None
    bd_seq: int | None = None
    seq: int = 0
    node: Metrics | None = None
    devices: Mapping[str, Metrics] = field(default_factory=dict)
    said_at: Mapping[str, int] = field(default_factory=dict)
    born_at: int = 0
    rebirth_due: bool = False

    def topic(self, message: str, device: str | None = None) -> str:
        """Of a message of the node, or of one of its devices."""
        end = "" if device is None else f"/{device}"
        return f"{NAMESPACE}/{self.group}/{message}/{self.name}{end}"


Step = tuple[EdgeNode, list[Publish]]


def next_bd_seq(number: int) -> int:
    """The number of a connection by how many there were before it."""
    return number % NUMBERS


def death(node: EdgeNode, bd_seq: int, now_ms: int) -> Publish:
    """What the broker says for the node where it can no more; it bears no `seq` (section 6.4.25)."""
    metric = Metric(BD_SEQ, bd_seq, Datatype.INT64)
    payload = encode_payload(Payload(now_ms, (metric,)), (Datatype.INT64,))
    return Publish(node.topic("NDEATH"), payload, qos=1)


def step(node: EdgeNode, event: Event, now_ms: int) -> Step:
    """Apply one event; `now_ms` are milliseconds since 1970."""
    match event:
        case Connected(bd_seq):
            return _spoken(_silent(replace(node, bd_seq=bd_seq)), now_ms)
        case Disconnected():
            return _silent(replace(node, bd_seq=None)), []
        case Observed():
            return _spoken(replace(node, latest=event), now_ms)
        case RebirthAsked():
            return _spoken(replace(node, rebirth_due=node.node is not None), now_ms)
        case Leaving():
            said = [] if node.bd_seq is None else [death(node, node.bd_seq, now_ms)]
            return _silent(replace(node, bd_seq=None)), said


def _silent(node: EdgeNode) -> EdgeNode:
    """Nothing was said in this connection yet."""
    return replace(node, node=None, devices={}, said_at={}, rebirth_due=False)


def _spoken(node: EdgeNode, now_ms: int) -> Step:
    """Say what is due."""
    if node.bd_seq is None or node.latest is None:
        return node, []
    again = node.rebirth_due and now_ms >= node.born_at + REBIRTH_MS
    if node.node is None or again or node.node.keys() != node.latest.node.keys():
        return _born(node, node.latest, node.bd_seq, now_ms)
    if node.rebirth_due:
        return node, []  # no data after a rebirth was asked for (section 5.17)
    return _changed(node, node.latest, now_ms)


def _born(node: EdgeNode, latest: Observed, bd_seq: int, now_ms: int) -> Step:
    """The whole sequence of births: the node's own, then its devices'."""
    control: Metrics = {BD_SEQ: (Datatype.INT64, bd_seq), REBIRTH: (Datatype.BOOLEAN, False)}
    node = replace(_silent(node), seq=0, node=latest.node, born_at=now_ms)
    node, birth = _numbered(node, "NBIRTH", None, {**control, **latest.node}, now_ms)
    said = [birth]
    for device in sorted(latest.devices):
        node, birth = _device_born(node, device, latest.devices[device], now_ms)
        said.append(birth)
    return node, said


def _device_born(node: EdgeNode, device: str, metrics: Metrics, now_ms: int) -> tuple[EdgeNode, Publish]:
    node, birth = _numbered(node, "DBIRTH", device, metrics, now_ms)
    return _told(node, device, metrics, now_ms), birth


def _changed(node: EdgeNode, latest: Observed, now_ms: int) -> Step:
    """Deaths and births of devices, then what has changed, longest unsaid first."""
    said: list[Publish] = []
    for device in sorted(node.devices.keys() - latest.devices.keys()):
        node, one = _numbered(node, "DDEATH", device, {}, now_ms)
        left = {name: metrics for name, metrics in node.devices.items() if name != device}
        node = replace(node, devices=left)
        said.append(one)
    for device, metrics in sorted(latest.devices.items()):
        known = node.devices.get(device)
        if known is None or known.keys() != metrics.keys():
            node, one = _device_born(node, device, metrics, now_ms)
            said.append(one)
    if new := _differences(node.node or {}, latest.node):
        node, one = _numbered(node, "NDATA", None, new, now_ms)
        node = replace(node, node=latest.node)
        said.append(one)
    for device in _due(node, latest, now_ms):
        new = _differences(node.devices[device], latest.devices[device])
        node, one = _numbered(node, "DDATA", device, new, now_ms)
        node = _told(node, device, latest.devices[device], now_ms)
        said.append(one)
    return node, said


def _due(node: EdgeNode, latest: Observed, now_ms: int) -> list[str]:
    changed = [device for device, metrics in latest.devices.items() if metrics != node.devices.get(device)]
    waited = [device for device in changed if now_ms >= node.said_at.get(device, 0) + SPACING_MS]
    return sorted(waited, key=lambda device: (node.said_at.get(device, 0), device))[:MOST_DATA]


def _differences(before: Metrics, now: Metrics) -> dict[str, Value]:
    return {name: value for name, value in now.items() if before.get(name) != value}


def _told(node: EdgeNode, device: str, metrics: Metrics, now_ms: int) -> EdgeNode:
    return replace(node, devices={**node.devices, device: metrics}, said_at={**node.said_at, device: now_ms})


def _numbered(
    node: EdgeNode, message: str, device: str | None, metrics: Metrics, now_ms: int
) -> tuple[EdgeNode, Publish]:
    """A message with the next number; only births state what their values are (section 6.4.6)."""
    birth = message.endswith("BIRTH")
    listed = tuple(Metric(name, value, kind if birth else None) for name, (kind, value) in metrics.items())
    payload = Payload(now_ms, listed, node.seq)
    data = encode_payload(payload, (kind for kind, _ in metrics.values()))
    return replace(node, seq=(node.seq + 1) % NUMBERS), Publish(node.topic(message, device), data)
