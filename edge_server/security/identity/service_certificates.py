"""The certificates of server processes with broker connections of their own."""

from dataclasses import replace
from pathlib import Path

from edge_client.transport.broker_address import BrokerAddress, TlsFiles
from schemas.errors import ConfigError


def service_broker_address(
    address: BrokerAddress, service: str, authority: Path | None, *, section: str
) -> BrokerAddress:
    """The broker's address with a service's certificate; raises `ConfigError` if its files are missing.

    They are in the `authority`'s folder, by default the one that contains the server's own certificate. One
    certificate cannot serve two connections, because its name is the client identifier.
    """
    if address.tls is None or (authority is None and address.tls.certificate is None):
        return address
    own = address.tls.certificate
    folder = authority if authority is not None else Path(str(own)).absolute().parent.parent
    own_folder = folder / service
    files = TlsFiles(own_folder / "ca.pem", own_folder / f"{service}.pem", own_folder / f"{service}.key")
    for file in (files.ca, files.certificate, files.key):
        if file is not None and not file.is_file():
            raise ConfigError(
                f"[{section}] there is no {file}: `edge-server enroll` makes it when a device is"
                " enrolled; name the authority's folder with authority = DIR"
            )
    return replace(address, tls=files)
