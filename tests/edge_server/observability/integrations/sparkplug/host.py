"""A host that follows one edge node and checks every message against the Sparkplug rules."""

from dataclasses import dataclass, field

from edge_server.observability.integrations.sparkplug.payload import Payload, Scalar, decode_payload


@dataclass
class Host:
    """The state of one node as a host knows it; a broken rule is an AssertionError with the rule's name.

    The rule names are those of the specification's test kit (Eclipse Sparkplug 3.0.0, appendix B).
    """

    group: str = "Plant"
    node: str = "home"
    online: bool = False
    bd_seq: int | None = None
    last_seq: int | None = None
    values: dict[str, Scalar] = field(default_factory=dict)
    devices: dict[str, dict[str, Scalar]] = field(default_factory=dict)
    kinds: list[str] = field(default_factory=list)

    def receive(self, topic: str, data: bytes) -> Payload:
        """Check a message and update the known state."""
        root, group, kind, node, *rest = topic.split("/")
        assert (root, group, node) == ("spBv1.0", self.group, self.node), "tck-id-topic-structure"
        payload = decode_payload(data)
        self.kinds.append(kind)
        device = rest[0] if rest else None
        assert (device is not None) == kind.startswith("D"), "device-id-associated-message-types"
        assert payload.timestamp > 0, "tck-id-payloads-nbirth-timestamp"
        getattr(self, f"_{kind.lower()}")(payload, device)
        return payload

    def _nbirth(self, payload: Payload, device: None) -> None:
        assert payload.seq == 0, "tck-id-topics-nbirth-seq-num"
        values = _announced(payload)
        assert values.pop("Node Control/Rebirth") is False, "tck-id-topics-nbirth-rebirth-metric"
        bd_seq = values.pop("bdSeq")
        assert isinstance(bd_seq, int), "tck-id-topics-nbirth-bdseq-included"
        self.bd_seq, self.last_seq, self.online, self.values = bd_seq, 0, True, values
        self.devices = {}

    def _ndeath(self, payload: Payload, device: None) -> None:
        assert payload.seq is None, "tck-id-topics-ndeath-seq"
        assert [metric.name for metric in payload.metrics] == ["bdSeq"], "tck-id-topics-ndeath-payload"
        if payload.metrics[0].value == self.bd_seq:
            self.online, self.devices = False, {}

    def _ndata(self, payload: Payload, device: None) -> None:
        self._counted(payload)
        self.values |= _changed(payload, self.values)

    def _dbirth(self, payload: Payload, device: str) -> None:
        self._counted(payload)
        self.devices[device] = _announced(payload)

    def _ddata(self, payload: Payload, device: str) -> None:
        self._counted(payload)
        assert device in self.devices, "tck-id-topics-ddata-payload: no earlier DBIRTH"
        self.devices[device] |= _changed(payload, self.devices[device])

    def _ddeath(self, payload: Payload, device: str) -> None:
        self._counted(payload)
        del self.devices[device]

    def _counted(self, payload: Payload) -> None:
        assert self.online, "tck-id-payloads-dbirth-order: an NBIRTH comes first"
        assert self.last_seq is not None
        assert payload.seq == (self.last_seq + 1) % 256, "tck-id-payloads-sequence-num-incrementing"
        self.last_seq = payload.seq


def _announced(payload: Payload) -> dict[str, Scalar]:
    assert all(metric.datatype is not None for metric in payload.metrics), "metric-datatype-req"
    return {metric.name: metric.value for metric in payload.metrics}


def _changed(payload: Payload, known: dict[str, Scalar]) -> dict[str, Scalar]:
    found = {metric.name: metric.value for metric in payload.metrics}
    assert found.keys() <= known.keys(), "data-publish-dbirth: only metrics that a birth has announced"
    assert found, "data without any change"
    assert not [name for name in found if found[name] == known[name]], "data-publish-dbirth-change"
    return found
