"""Whether the broker lets this device connect, subscribe, publish and receive, and up to which packet size.

The checks leave nothing behind: they send an idle telemetry message and a request for a nonexistent blob,
which a running server answers on the device's own topic. A broker that was set up by `edge-server enroll`
allows one connection per device, so a running agent is disconnected briefly.
"""

import queue
import secrets
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import paho.mqtt.client as mqtt
from paho.mqtt.enums import MQTTProtocolVersion

from edge_client.cli.doctor.finding import Finding, failure, ok, warning
from edge_client.transport import packet_size, paho_client
from edge_client.transport.broker_link import BrokerAddress, TlsFiles
from edge_client.transport.tls import explain, make_context
from schemas.errors import ConfigError, EdgeError
from schemas.messages import BlobRequest, Telemetry, blobs, encode_message
from schemas.tensors.chunks import CHUNK_BYTES, CHUNK_SIZES, FRAME_BYTES
from schemas.topics import ROOT, Channel, DeviceTopic, device_filters

PATIENCE_S = 8.0
ANSWER_S = 4.0
UNSUPPORTED_PROTOCOL = 0x84
NOT_AUTHORISED = frozenset({0x86, 0x87, 5, 4})
"""Reason codes of MQTT 5 and return codes of 3.1.1: bad user name or password, not authorised."""

REMEDY = (
    "certificates and access rules per device: `edge-server enroll DEVICE --host HOST` makes them, with the"
    " broker's configuration"
)


@dataclass
class Probe:
    """A connection and its events, as (kind, value)."""

    client: mqtt.Client
    events: queue.SimpleQueue[tuple[str, Any]] = field(default_factory=queue.SimpleQueue)

    def wait(self, what: str, seconds: float = PATIENCE_S) -> Any:
        """The value of the next event of this kind; None if none comes or the connection ends."""
        try:
            while True:
                kind, value = self.events.get(timeout=seconds)
                if kind == what:
                    return value
                if kind == "down":
                    return None
        except queue.Empty:
            return None

    def hears(self, topic: str) -> bool:
        """Whether a message comes on this topic in time."""
        heard = self.wait("message", ANSWER_S)
        while heard is not None and heard != topic:
            heard = self.wait("message", ANSWER_S)
        return heard is not None

    def say_idle(self, topic: str, federation: str, device: str) -> None:
        """Publish a harmless message in a device's name."""
        idle = Telemetry(federation=federation, device=device, session=0, phase="idle")
        self.client.publish(topic, encode_message(idle), qos=1)

    def close(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


def broker(address: BrokerAddress, federation: str, device: str) -> Iterator[Finding]:
    """The checks of a broker that accepts connections, in order; impossible ones are skipped."""
    probe = None
    try:
        probe, answer = meet(address, f"{federation}-{device}-doctor")
        yield from _session(probe, answer, address, federation, device)
    except (OSError, ssl.SSLError) as error:
        yield failure("mqtt", explain(error, address) or str(error), "see the lines above")
    except ConfigError as error:
        yield failure(
            "mqtt", str(error), "name the files that `edge-server enroll` made: --ca, --cert, --key"
        )
    finally:
        if probe is not None:
            probe.close()


def _session(
    probe: Probe, answer: Any, address: BrokerAddress, federation: str, device: str
) -> Iterator[Finding]:
    if answer is None:
        remedy = "does it speak MQTT at this port, and take this device's certificate? its log says"
        yield failure("mqtt", "the broker ends the connection without an answer", remedy)
        return
    reason, properties = answer
    if reason.is_failure:
        remedy = "a certificate (--cert, --key) or a user name in --broker that the broker knows"
        known = reason.value in NOT_AUTHORISED
        yield failure("mqtt", f"the broker refuses: {reason}", remedy if known else "its log says why")
        return
    five = probe.client.protocol is MQTTProtocolVersion.MQTTv5
    yield ok("mqtt", f"connected, version {'5' if five else '3.1.1'}")
    most = getattr(properties, "MaximumPacketSize", None)
    yield packets(
        most, _find_largest_chunk(probe, address, most, f"{ROOT}/{federation}/devices/{device}/echo")
    )
    yield from _access(probe, federation, device, five=five)


def packets(most: int | None, tried: int | None = None) -> Finding:
    """Whether chunks fit; `most` is the broker's announced limit in bytes.

    `tried` is the largest chunk size in bytes that returned; None if no chunk could be tested.
    """
    said = "none announced" if most is None else f"{most} bytes"
    remedy = f"max_packet_size {4 * CHUNK_BYTES} in the broker's configuration, and no message_size_limit"
    fits = [size for size in CHUNK_SIZES if most is None or size + FRAME_BYTES <= most]
    if tried == 0 or not fits:
        return failure("packet limit", f"{said}: not even {packet_size.MIN_PACKET} bytes pass", remedy)
    chunk = fits[0] if tried is None else min(tried, fits[0])
    if tried is not None:
        said = f"{said}; chunks of {chunk // 1024} kB come back"
    if chunk == CHUNK_BYTES:
        return ok("packet limit", said)
    return warning("packet limit", f"{said}: models travel in them, which is slower", remedy)


def _find_largest_chunk(probe: Probe, address: BrokerAddress, most: int | None, topic: str) -> int | None:
    """The largest chunk that returns on the device's own topic; 0 for none, None if no message returns.

    If the broker closes the connection on a chunk that is too large, the test reconnects for the next size.
    """
    sizes = [size for size in CHUNK_SIZES if most is None or size + FRAME_BYTES <= most]
    if not _comes_back(probe, topic, 1):
        return None
    for size in sizes:
        if _comes_back(probe, topic, size + packet_size.MARGIN):
            return size
        if not probe.client.is_connected():
            probe.client.loop_stop()
            if connect_probe(probe, address) is None:
                return None
            _comes_back(probe, topic, 1)
    return 0


def _comes_back(probe: Probe, topic: str, size: int) -> bool:
    probe.client.subscribe(topic, qos=0)
    probe.wait("granted")
    probe.client.publish(topic, bytes(size), qos=0)
    return probe.hears(topic)


def _access(probe: Probe, federation: str, device: str, *, five: bool) -> Iterator[Finding]:
    filters = device_filters(federation, device)
    probe.client.subscribe([(topic, 1) for topic in filters])
    granted = probe.wait("granted")
    remedy = (
        f"let it read {' and '.join(filters)} in the broker's access rules (`edge-server enroll` writes them)"
    )
    if granted is None or any(code.is_failure for code in granted):
        yield failure("may subscribe", "the broker does not grant its topics", remedy)
        return
    yield ok("may subscribe", "granted: its own topics and everybody's")
    up = str(DeviceTopic(federation, device, Channel.UP))
    probe.say_idle(up, federation, device)
    confirmed = probe.wait("confirmed")
    if confirmed is None or confirmed.is_failure:
        said = "the broker does not take its messages" + (f": {confirmed}" if confirmed is not None else "")
        yield failure("may publish", said, f"let it write {up.rpartition('/')[0]}/# in the access rules")
        return
    # A broker of 3.1.1 acknowledges what it throws away.
    if five:
        yield ok("may publish", "its own topics")
    else:
        yield ok("may publish", "acknowledged, which version 3.1.1 does for what it forbids too")
    yield _check_server(probe, federation, device)


def _check_server(probe: Probe, federation: str, device: str) -> Finding:
    """Whether a running server receives the device's messages and is received by it."""
    request = BlobRequest(federation=federation, device=device, digest=blobs.UNKNOWN_DIGEST, first=0, count=1)
    probe.client.publish(str(DeviceTopic(federation, device, Channel.UP)), encode_message(request), qos=1)
    if not probe.hears(str(DeviceTopic(federation, device, Channel.DOWN))):
        remedy = "start `edge-server run`; if it runs, let the device read its own down/# in the access rules"
        return warning("server", f"no answer within {ANSWER_S:.0f} s", remedy)
    return ok("server", "answers on the device's own topic")


def meet(address: BrokerAddress, client_id: str) -> tuple[Probe, Any]:
    """A probe with the broker's answer, of MQTT 5, or else of 3.1.1: some brokers do not even refuse 5."""
    probe = make_probe(address, client_id, MQTTProtocolVersion.MQTTv5)
    answer = connect_probe(probe, address)
    if answer is None or answer[0].value == UNSUPPORTED_PROTOCOL:
        probe.close()
        probe = make_probe(address, client_id, MQTTProtocolVersion.MQTTv311)
        answer = connect_probe(probe, address)
    return probe, answer


def connect_probe(probe: Probe, address: BrokerAddress) -> Any:
    """The broker's answer to the connection: its reason and properties; None if none comes."""
    terms = paho_client.connect_terms(probe.client.protocol)
    probe.client.connect(address.host, address.port, **terms)
    probe.client.loop_start()
    return probe.wait("answer", PATIENCE_S)


def make_probe(address: BrokerAddress, client_id: str, version: MQTTProtocolVersion) -> Probe:
    tls = None if address.tls is None else make_context(address.tls)
    client = paho_client.make_client(address, client_id, version, tls, reconnect_on_failure=False)
    probe = Probe(client)
    tell = probe.events.put
    client.on_connect = lambda _c, _u, _f, reason, properties: tell(("answer", (reason, properties)))
    client.on_disconnect = lambda _c, _u, _f, reason, _p: tell(("down", reason))
    client.on_subscribe = lambda _c, _u, _m, codes, _p: tell(("granted", codes))
    client.on_publish = lambda _c, _u, _m, reason, _p: tell(("confirmed", reason))
    client.on_message = lambda _c, _u, message: tell(("message", message.topic))
    return probe


def strangers(address: BrokerAddress, federation: str) -> Finding:
    """Whether this broker lets anyone publish and subscribe as any device.

    A client without certificate, user name and the device's client identifier publishes a harmless message in
    the name of an invented device, and checks whether it receives it.
    """
    tls = None if address.tls is None else TlsFiles(ca=address.tls.ca)
    probe = None
    try:
        bare = BrokerAddress(address.host, address.port, tls, path=address.path)
        probe, answer = meet(bare, f"stranger-{secrets.token_hex(6)}")
        if answer is None or answer[0].is_failure or not _is_heard(probe, federation):
            return ok("strangers", "are not let in, or may not speak and hear as a device")
    except (OSError, EdgeError) as error:
        return ok("strangers", f"are not let in: {error}")
    finally:
        if probe is not None:
            probe.close()
    found = (
        f"{address} lets anyone in: every client can publish and subscribe as any device, and as the server"
    )
    return warning("strangers", found, REMEDY)


def _is_heard(probe: Probe, federation: str) -> bool:
    """Whether it receives what it publishes as an invented device."""
    device = f"stranger-{secrets.token_hex(6)}"
    topic = str(DeviceTopic(federation, device, Channel.UP))
    probe.client.subscribe(topic, qos=1)
    if probe.wait("granted") is None:
        return False
    probe.say_idle(topic, federation, device)
    return probe.hears(topic)
