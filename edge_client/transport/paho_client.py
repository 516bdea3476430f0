"""paho's client as every connection to a broker uses it: transport, credentials, terms of the connect."""

import socket
import ssl
from dataclasses import dataclass, replace
from typing import Any

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from edge_client.transport import broker_link, packet_size
from schemas.errors import ConfigError
from schemas.tensors.chunks import CHUNK_SIZES

ADVISE_AT = (3, 10, 30, 100, 300, 1000)
"""Numbers of consecutive failures at which the message says what to check."""


@dataclass(frozen=True)
class ConnectionAttempts:
    """Counts consecutive failed attempts; with `keep_trying` no failure is final."""

    address: broker_link.BrokerAddress
    keep_trying: bool = False
    failures: int = 0

    def on_success(self) -> "ConnectionAttempts":
        """Reset the count after a connection."""
        return replace(self, failures=0)

    def on_failure(self, down: broker_link.LinkDown) -> "tuple[ConnectionAttempts, str]":
        """Count a failure and return the message for the user; `ConfigError` if no retry can succeed."""
        counted = replace(self, failures=self.failures + 1)
        message = f"no connection to {self.address}: {down.reason}"
        if down.lasting and not self.keep_trying:
            raise ConfigError(
                f"{message}\nwaiting does not mend this: {self._doctor()}",
                remedy="--keep-trying tries again all the same",
            )
        if counted.failures not in ADVISE_AT:
            return counted, f"{message}; trying again"
        return counted, f"{message}; {counted.failures} tries have failed: {self._doctor()}; trying again"

    def chunk_bytes(self, max_packet: int | None) -> int:
        """The largest chunk size in bytes that fits the broker's packets; `ConfigError` if none does."""
        try:
            return packet_size.fitting(max_packet)[0]
        except ConfigError:
            if not self.keep_trying:
                raise
            return CHUNK_SIZES[-1]

    def _doctor(self) -> str:
        options = f"--broker {self.address}" + (" --ca, --cert, --key as here" if self.address.tls else "")
        return f"`edge-client doctor {options}` looks at name, port, certificates and access one by one"


def device_name_conflict(device: str, detail: str) -> ConfigError:
    """The error of a device whose name another device uses already."""
    return ConfigError(
        f"another device is called {device}, and the broker keeps only one of the two connected: {detail}",
        remedy="give this one a name of its own (--device-id, with a state folder and a certificate "
        "of its own)",
    )


KEEPALIVE_S = 30
MAX_PACKET = 1024 * 1024 + 64 * 1024
"""The largest chunk with its frame; an MQTT 5 broker sends nothing larger."""


def make_client(
    address: broker_link.BrokerAddress,
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
