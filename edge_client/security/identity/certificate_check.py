"""Checks the device's certificate before a connection: a broker would reject it without a reason."""

import logging

from cryptography import x509

from edge_client.security.identity.certificates import common_name, validity_of
from edge_client.security.identity.private_files import is_open_to_others
from edge_client.security.identity.validity import Validity, format_utc
from edge_client.transport.broker_address import TlsFiles
from schemas.errors import ConfigError

log = logging.getLogger(__name__)


def check_files(files: TlsFiles, device: str, now: float) -> None:
    """Warn of a key that others may read; raise `ConfigError` for an invalid certificate."""
    if files.key is not None and is_open_to_others(files.key):
        log.warning("others may read the private key %s: chmod 600 %s", files.key, files.key)
    if files.certificate is None:
        return
    try:
        certificate = x509.load_pem_x509_certificate(files.certificate.read_bytes())
    except (ValueError, OSError) as error:
        raise ConfigError(
            f"no certificate can be read there: {error}", key=f"--cert {files.certificate}"
        ) from error
    check_validity(validity_of(certificate), str(files.certificate), device, now)
    name = common_name(certificate)
    if name != device:
        raise ConfigError(
            f"--cert {files.certificate} is for '{name}', but the device is '{device}': the broker would"
            f" let it use the topics of '{name}' only",
            remedy=f"use --device-id {name}",
        )


def check_validity(validity: Validity, path: str, device: str, now: float) -> None:
    """Raise `ConfigError` unless `now`, in seconds since 1970, is within the validity."""
    if now >= validity.not_after:
        raise ConfigError(
            f"--cert {path} expired on {format_utc(validity.not_after)}",
            remedy=f"on the server, `edge-server enroll {device} --renew --out DIR` makes a new one",
        )
    if now < validity.not_before:
        raise ConfigError(
            f"--cert {path} is valid from {format_utc(validity.not_before)} on, and this machine's clock "
            f"says {format_utc(now)}",
            remedy="set the clock",
        )
