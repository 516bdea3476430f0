"""paho's client as every connection to a broker uses it: transport, credentials, terms of the connect."""

import socket
import ssl
from typing import Any

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from edge_client.transport.broker_address import BrokerAddress

KEEPALIVE_S = 30
MAX_PACKET = 1024 * 1024 + 64 * 1024
"""The largest chunk with its frame; an MQTT 5 broker sends nothing larger."""


def make_client(
    address: BrokerAddress,
    client_id: str,
    version: MQTTProtocolVersion,
    tls: ssl.SSLContext | None,
    **more: Any,
) -> mqtt.Client:
    """A client that is not connected; `more` are further arguments of `mqtt.Client`."""
    client = mqtt.Client(
        CallbackAPIVersion.VERSION2,
        client_id=client_id,
        protocol=version,
        clean_session=None if version is MQTTProtocolVersion.MQTTv5 else True,
        transport="tcp" if address.path is None else "websockets",
        **more,
    )
    if address.path is not None:
        client.ws_set_options(path=address.path)
    if address.username is not None:
        client.username_pw_set(address.username, address.password)
    if tls is not None:
        client.tls_set_context(tls)
    client.on_socket_open = _without_delay
    return client


def connect_terms(version: MQTTProtocolVersion) -> dict[str, Any]:
    """The arguments of `connect`: no session is kept, so each connection begins a clean one."""
    if version is not MQTTProtocolVersion.MQTTv5:
        return {"keepalive": KEEPALIVE_S}
    properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
    properties.MaximumPacketSize = MAX_PACKET
    return {"keepalive": KEEPALIVE_S, "clean_start": True, "properties": properties}


def _without_delay(client: mqtt.Client, userdata: Any, sock: Any) -> None:
    """Switch Nagle off: with delayed acknowledgements it costs 40 to 90 ms per QoS 1 exchange."""
    raw = getattr(sock, "_socket", sock)  # within paho's wrapper of a WebSocket
    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
