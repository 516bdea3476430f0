"""The Sparkplug bridge: its own MQTT connection and thread; the connection's will is the node's death."""

import logging
import time
from pathlib import Path
from typing import Any

from edge_client.storage.private_state import note_session
from edge_client.transport.broker_link import Arrived, BrokerAddress, LinkDown, LinkUp
from edge_server.observability.integrations.bridge import Bridge
from edge_server.observability.integrations.sparkplug import edge_node
from edge_server.observability.integrations.sparkplug.payload import decode_payload

log = logging.getLogger(__name__)

TURN_S = 1.0


class Sparkplug(Bridge):
    """Publishes a run to SCADA hosts; the file `connections` holds the number of the last connection."""

    def __init__(
        self,
        group: str,
        federation: str,
        address: BrokerAddress,
        connections: Path,
        *,
        datatypes: bool = True,
    ) -> None:
        self._node = edge_node.EdgeNode(group, federation, datatypes)
        self._connections = connections
        super().__init__(
            "sparkplug",
            address,
            every_s=TURN_S,
            client_id=f"{federation}-sparkplug",
            filters=(self._node.topic("NCMD"),),
            will=self._will,
            will_retained=False,
            first_session=next_connection(connections),
        )

    def close(self) -> None:
        """Publish the node's death and disconnect with the will (section 5.5)."""
        self._end_thread()
        self._step(edge_node.Leaving())
        self._link.close(with_will=True)

    def _will(self, connection: int) -> tuple[str, bytes]:
        """The death of a new connection, whose number is written to disk before the broker learns it."""
        note_session(self._connections, connection)
        will = edge_node.death(self._node, edge_node.next_bd_seq(connection), _now_ms())
        return will.topic, will.payload

    def _turn(self, now: float) -> None:
        if self._latest is not None:
            self._step(
                edge_node.Observed(
                    edge_node.node_metrics(self._latest), edge_node.device_metrics(self._latest)
                )
            )

    def _handle(self, event: Any) -> None:
        match event:
            case LinkUp(connection):
                self._step(edge_node.Connected(edge_node.next_bd_seq(connection)))
            case LinkDown(reason):
                log.info("Sparkplug: no connection to the broker: %s; trying again", reason)
                self._step(edge_node.Disconnected())
                self._link.handle(event)
            case Arrived(topic, payload) if topic == self._node.topic("NCMD") and asks_for_rebirth(payload):
                self._step(edge_node.RebirthAsked())

    def _step(self, event: edge_node.Event) -> None:
        self._node, messages = edge_node.step(self._node, event, _now_ms())
        for message in messages:
            self._link.publish(message.topic, message.payload, qos=message.qos)


def asks_for_rebirth(payload: bytes) -> bool:
    """Whether a host's command asks for a rebirth; raises `PeerError` for a malformed payload."""
    metrics = decode_payload(payload).metrics
    return any(metric.name == edge_node.REBIRTH and metric.value is True for metric in metrics)


def next_connection(path: Path) -> int:
    """The number of the next connection; the first is 0 (tck-id-topics-nbirth-bdseq-increment)."""
    try:
        return int(path.read_text()) + 1
    except (OSError, ValueError):
        return 0


def _now_ms() -> int:
    return int(time.time() * 1000)
