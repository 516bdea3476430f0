"""Whether the broker is reachable, and whether TLS works on both sides."""

import socket
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from edge_client.cli.doctor.finding import Finding, failure, ok, warning
from edge_client.transport.broker_link import BrokerAddress, TlsFiles
from edge_client.transport.tls import explain, make_context
from schemas.errors import ConfigError

PATIENCE_S = 8.0
SOON_DAYS = 14


def network(address: BrokerAddress, device: str, now: float) -> Iterator[Finding]:
    """Check the connection, the device's certificate and the handshake; impossible checks are skipped."""
    try:
        with socket.create_connection((address.host, address.port), timeout=PATIENCE_S) as connection:
            yield ok("broker", f"{address} takes connections")
            if address.tls is not None:
                yield from _tls(connection, address, address.tls, device, now)
    except OSError as error:
        yield _unreachable(address, error)


def _unreachable(address: BrokerAddress, error: OSError) -> Finding:
    if isinstance(error, socket.gaierror):
        remedy = f"is the name '{address.host}' right (--broker), and does this board have a name server?"
        return failure("broker", f"the name '{address.host}' is not known: {error.strerror}", remedy)
    if isinstance(error, ConnectionRefusedError):
        remedy = f"start the broker, or name its port (--broker): nothing listens at {address.port}"
        return failure("broker", f"{address} refuses connections", remedy)
    remedy = "is the board on the network, and does a firewall let this port through?"
    return failure("broker", f"{address} does not answer: {error}", remedy)


def _tls(
    connection: socket.socket, address: BrokerAddress, files: TlsFiles, device: str, now: float
) -> Iterator[Finding]:
    yield from _own_certificate(files, device, now)
    try:
        context = make_context(files)
        with context.wrap_socket(connection, server_hostname=address.host) as secured:
            # A broker of TLS 1.3 says no to a client's certificate only after the handshake.
            yield _certificate_of_the_broker(secured.getpeercert() or {}, address, now)
    except ConfigError as error:
        yield failure("tls", str(error), "name the files that `edge-server enroll` made: --ca, --cert, --key")
    except (ssl.SSLError, OSError) as error:
        what, _, remedy = explain(error, address).partition(": ")
        yield failure("tls", what, remedy or "is this the broker's TLS port?")


def _own_certificate(files: TlsFiles, device: str, now: float) -> Iterator[Finding]:
    if files.certificate is None:
        return
    try:
        from edge_client.security.identity.key_pair import check_files

        check_files(files, device, now)
    except ModuleNotFoundError:
        remedy = "pip install 'edge-federation[client]'"
        yield warning("certificate", "cannot be looked at without `cryptography`", remedy)
    except ConfigError as error:
        what = str(error).removesuffix(f": {error.remedy}")
        remedy = error.remedy or "set the clock, or name the right file (--cert) and device (--device-id)"
        yield failure("certificate", what, remedy)
    else:
        yield ok("certificate", f"{files.certificate} is of '{device}' and valid now")


def _certificate_of_the_broker(certificate: Any, address: BrokerAddress, now: float) -> Finding:
    end = ssl.cert_time_to_seconds(certificate["notAfter"]) if "notAfter" in certificate else None
    if end is None:
        return ok("tls", f"the broker's certificate is for '{address.host}'")
    said = (
        f"the broker's certificate is for '{address.host}', until {datetime.fromtimestamp(end, UTC):%Y-%m-%d}"
    )
    if end - now < SOON_DAYS * 86_400:
        return warning("tls", said, "`edge-server enroll` on the server makes a new one")
    return ok("tls", said)
