"""One archive per device: key, certificate, trusted keys, `client.toml`, systemd unit, install script."""

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path

from cryptography.hazmat.primitives.serialization import Encoding

from edge_client.security.identity.certificates import key_pem, new_key
from edge_client.security.identity.enrolment_bundle import CA, CERTIFICATE, INSTALL, KEY, TRUST, board_files
from edge_client.security.identity.private_files import private_folder, write_private
from edge_server.security.identity.authority import Authority


def write_bundle(
    authority: Authority,
    device: str,
    out: Path,
    *,
    trust: str = "",
    wheel: Path | None = None,
    data: str | None = None,
    labels: Mapping[str, str] | None = None,
) -> Path:
    """Issue a certificate for a new key and pack both; returns the archive, the only copy of the key.

    `data` and `labels` are for its `client.toml`; without a data source the device's owner must add one.
    """
    settings, key = authority.settings, new_key()
    texts = board_files(
        broker=settings.broker,
        federation=settings.federation,
        device=device,
        trusts=bool(trust),
        data=data,
        labels=labels,
    )
    contents = {name: text.encode() for name, text in texts.items()}
    contents[CA] = authority.ca_pem
    contents[KEY] = key_pem(key)
    contents[CERTIFICATE] = authority.issue(device, key.public_key()).public_bytes(Encoding.PEM)
    if trust:
        contents[TRUST] = trust.encode()
    if wheel is not None:
        contents[wheel.name] = wheel.read_bytes()
    return _write_archive(out, device, contents, int(authority.clock()))


GATEWAY_CERTIFICATE, GATEWAY_KEY, GATEWAY_OPTIONS = "gateway.pem", "gateway.key", "gateway.env"
_OPTIONS = """\
# For deploy/systemd/edge-gateway.service; all files of this archive go to /etc/edge-gateway.
# The site's own broker: another --broker, with the certificate of the site's server if it wants one.
EDGE_GATEWAY_OPTIONS=--federation {federation} --site {site} --upstream {broker} \
--upstream-ca /etc/edge-gateway/ca.pem --upstream-cert /etc/edge-gateway/gateway.pem \
--upstream-key /etc/edge-gateway/gateway.key --broker mqtt://127.0.0.1:1883
"""


def write_gateway_bundle(authority: Authority, site: str, out: Path) -> Path:
    """Issue a certificate for a site's gateway and pack it; returns the archive, the only copy of the key.

    It is good for the federation's broker alone. The site's devices have an authority of their own, which
    that broker does not know: with its key nobody can speak for devices of others there.
    """
    key, settings = new_key(), authority.settings
    options = _OPTIONS.format(federation=settings.federation, site=site, broker=settings.broker)
    contents = {
        CA: authority.ca_pem,
        GATEWAY_KEY: key_pem(key),
        GATEWAY_CERTIFICATE: authority.issue(site, key.public_key()).public_bytes(Encoding.PEM),
        GATEWAY_OPTIONS: options.encode(),
    }
    write_private(private_folder(authority.folder / "sites") / site, b"")
    return _write_archive(out, site, contents, int(authority.clock()))


def _write_archive(out: Path, name: str, contents: dict[str, bytes], now: int) -> Path:
    """Pack the files into the folder `name` of the archive `name.tar`."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        top = tarfile.TarInfo(name)
        top.type, top.mode, top.mtime = tarfile.DIRTYPE, 0o700, now
        archive.addfile(top)
        for file, content in sorted(contents.items()):
            entry = tarfile.TarInfo(f"{name}/{file}")
            entry.size, entry.mtime = len(content), now
            entry.mode = 0o700 if file == INSTALL else 0o600
            archive.addfile(entry, io.BytesIO(content))
    path = private_folder(out) / f"{name}.tar"
    write_private(path, buffer.getvalue())
    return path
