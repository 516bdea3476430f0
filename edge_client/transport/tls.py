"""TLS with certificates: the context of a connection, and explanations of its errors."""

import logging
import ssl

from edge_client.transport.broker_link import BrokerAddress, TlsFiles
from schemas.errors import ConfigError

log = logging.getLogger(__name__)

_OF_THE_BROKER = {  # Messages by OpenSSL's verification error code
    9: "the broker's certificate is not valid yet: is this machine's clock right?",
    10: "the broker's certificate has expired: `edge-server enroll` on the server makes a new one",
    62: "the broker's certificate is not for the host '{host}': `edge-server enroll DEVICE --host {host}`"
    " on the server makes one that is",
    64: "the broker's certificate is not for the address '{host}': `edge-server enroll DEVICE --host {host}`"
    " on the server makes one that is",
}
_UNKNOWN_SIGNER = (
    "the broker's certificate is not signed by the authority in {ca}: that is the wrong file (--ca), or the"
    " wrong broker"
)
_UNKNOWN_SIGNERS = {2, 18, 19, 20, 21}
_REMEDY = "ask for a new one: `edge-server enroll DEVICE --renew` on the server"
_OF_THE_CLIENT = {  # Messages by words of the broker's TLS alert
    "certificate expired": "the broker says that this certificate ({cert}) has expired: " + _REMEDY,
    "certificate revoked": "the broker says that this certificate ({cert}) is revoked: " + _REMEDY,
    "unknown ca": "the broker does not know the authority that signed {cert}: is it from another federation?",
    "certificate required": "the broker requires a certificate: name one with --cert and --key",
    "bad certificate": "the broker rejects the certificate {cert}: " + _REMEDY,
    "eof occurred": "the broker ended the TLS handshake: does it accept {cert}?",
    "wrong version number": "the broker does not speak TLS at this port: mqtt:// instead of mqtts://, or"
    " another port",
}


_LASTING_CODES = _UNKNOWN_SIGNERS | {62, 64}
"""Verification errors that last: an unknown signer, or another host."""
_LASTING_ALERTS = (
    "certificate revoked",
    "unknown ca",
    "certificate required",
    "bad certificate",
    "wrong version",
)


def make_context(files: TlsFiles) -> ssl.SSLContext:
    """Trust this authority (the system's if None) and present this certificate; `ConfigError`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        if files.ca is None:
            context.load_default_certs()
        else:
            context.load_verify_locations(files.ca)
    except (ssl.SSLError, OSError) as error:
        raise ConfigError(f"no certificate can be read there: {error}", key=f"--ca {files.ca}") from error
    load_pair(context, files)
    return context


def load_pair(context: ssl.SSLContext, files: TlsFiles) -> None:
    """Present the certificate and key that the files hold now; `ConfigError` if they do not match."""
    if files.certificate is None:
        return
    try:
        context.load_cert_chain(files.certificate, files.key)
    except (ssl.SSLError, OSError) as error:
        pair = f"--cert {files.certificate} and --key {files.key or files.certificate}"
        raise ConfigError(f"{pair}: no certificate with its own key can be read there: {error}") from error


def explain(trouble: BaseException | str | None, address: BrokerAddress) -> str:
    """Why a connection failed, and the remedy; empty if unknown."""
    files = address.tls or TlsFiles()
    names = {"host": address.host, "ca": files.ca, "cert": files.certificate}
    if isinstance(trouble, ssl.SSLCertVerificationError):
        known = _OF_THE_BROKER.get(trouble.verify_code)
        if trouble.verify_code in _UNKNOWN_SIGNERS:
            known = _UNKNOWN_SIGNER
        return known.format(**names) if known else f"the broker's certificate: {trouble.verify_message}"
    text = str(trouble or "")
    plain = text.lower().replace("_", " ")
    for words, meaning in _OF_THE_CLIENT.items():
        if words in plain:
            return meaning.format(**names)
    return text


def is_lasting(trouble: BaseException | str | None) -> bool:
    """Whether retries cannot succeed; a corrected clock or a renewed certificate may mend the others."""
    if isinstance(trouble, ssl.SSLCertVerificationError):
        return trouble.verify_code in _LASTING_CODES
    plain = str(trouble or "").lower().replace("_", " ")
    return any(words in plain for words in _LASTING_ALERTS)
