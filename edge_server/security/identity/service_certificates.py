"""The parts of the server that have a connection of their own, each with its certificate."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from edge_client.transport.broker_address import BrokerAddress, TlsFiles
from schemas.errors import ConfigError


def service_broker_address(
    address: BrokerAddress, station: str, authority: Path | None, *, section: str
) -> BrokerAddress:
    """The server's broker as that part connects to it; raises `ConfigError` where its files are missing.

    They lie in the `authority`'s folder, which is that of the server's own certificate unless it is stated:
    one certificate cannot hold two connections, for its name is the client's identifier.
    """
    if address.tls is None or (authority is None and address.tls.certificate is None):
        return address
    own = address.tls.certificate
    folder = authority if authority is not None else Path(str(own)).absolute().parent.parent
    place = folder / station
    files = TlsFiles(place / "ca.pem", place / f"{station}.pem", place / f"{station}.key")
    for file in (files.ca, files.certificate, files.key):
        if file is not None and not file.is_file():
            raise ConfigError(
                f"[{section}] there is no {file}: `edge-server enroll` makes it when a device is"
                " enrolled; name the authority's folder with authority = DIR"
            )
    return replace(address, tls=files)
