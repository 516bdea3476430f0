"""Whether the broker lets anyone publish and subscribe as any device.

A client without certificate, user name and the device's client identifier publishes a harmless message in the
name of an invented device, and checks whether it receives it. Nothing is left behind.
"""

import secrets

from edge_client.cli.doctor.broker import Probe, meet
from edge_client.cli.doctor.finding import Finding, ok, warning
from edge_client.transport.broker_address import BrokerAddress, TlsFiles
from schemas.errors import EdgeError
from schemas.topics import Channel, DeviceTopic

REMEDY = (
    "certificates and access rules per device: `edge-server enroll DEVICE --host HOST` makes them, with the"
    " broker's configuration"
)


def strangers(address: BrokerAddress, federation: str) -> Finding:
    """What a stranger can do at this broker."""
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
