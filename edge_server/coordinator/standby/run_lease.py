"""The lease of a federation for as long as a server runs."""

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from edge_client.transport.broker_address import BrokerAddress, TlsFiles
from edge_server.coordinator.run_start import read_run_and_epoch
from edge_server.coordinator.standby.standby_status import STATUS
from edge_server.storage.run_folder import RunFolder
from edge_server.transport.lease.holder import this_process
from edge_server.transport.lease.keeper import LeaseKeeper

log = logging.getLogger(__name__)

IDENTITIES = ("lease", "standby")
"""Folders of the authority, each with a certificate for one machine's lease connection."""


@contextlib.contextmanager
def lease_of(
    address: BrokerAddress, federation: str, out: Path, held: LeaseKeeper | None = None
) -> Iterator[LeaseKeeper | None]:
    """Look for the lease while the block begins, unless it is `held`, and give it back at its end.

    None where the broker knows clients by certificates and this server has none for a second connection.
    """
    if held is None:
        where = lease_address(address)
        if where is None:
            log.warning(
                "no certificate for the lease: two servers of one name would not notice each other, and no "
                "standby can follow; the next `edge-server enroll` makes AUTHORITY/lease"
            )
            yield None
            return
        (run, epoch), had_standby = read_run_and_epoch(out), (out / STATUS).exists()
        held = LeaseKeeper(
            where, federation, this_process(out), first_epoch=epoch, run=run, had_standby=had_standby
        ).open()
    try:
        yield held
    finally:
        held.close(over=RunFolder(out).has_ended)


def lease_address(address: BrokerAddress) -> BrokerAddress | None:
    """The broker's address with the certificate of a lease connection; None if there is none.

    It lies next to the folder of the server's own certificate, where `edge-server enroll` puts it, or in that
    folder. One certificate cannot serve two connections: the broker takes its name for the client's.
    """
    if address.tls is None or address.tls.certificate is None:
        return address
    own = address.tls.certificate.absolute().parent
    for folder in (place / name for name in IDENTITIES for place in (own.parent, own)):
        name = folder.name
        files = TlsFiles(folder / "ca.pem", folder / f"{name}.pem", folder / f"{name}.key")
        if all(file is not None and file.is_file() for file in (files.ca, files.certificate, files.key)):
            return replace(address, tls=files)
    return None
