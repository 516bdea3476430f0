"""The metrics of the node and of its devices, computed from a snapshot.

The names are always the same, with null for unknown values: data may only use names announced at birth.
"""

from collections.abc import Mapping

from edge_server.config.units import clean
from edge_server.observability.integrations.sparkplug.payload import Datatype, Scalar
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
