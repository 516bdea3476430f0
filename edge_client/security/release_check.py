"""The check of a signed client release, before any of it is used."""

from edge_client.security.trusted_key import TrustedKey, make_untrusted_error
from schemas.security.manifest import Manifest, SignedManifest


def check_release(
    signed: SignedManifest,
    key: TrustedKey,
    *,
    sha256: str,
    federation: str | None = None,
    name: str | None = None,
) -> Manifest:
    """The manifest of the archive with this digest; raises `PeerError` with reason `untrusted`.

    `federation` and `name` are those that the manifest must have, if they are known.
    """
    manifest = key.check(signed)
    if manifest.what != "client-release":
        raise make_untrusted_error(f"what is signed is a {manifest.what}, not a client release")
    if manifest.sha256 != sha256:
        raise make_untrusted_error(
            f"the signature is for {manifest.sha256[:16]}..., the archive is {sha256[:16]}..."
        )
    if federation is not None and manifest.federation != federation:
        raise make_untrusted_error(
            f"the release was signed for federation {manifest.federation}, this is {federation}"
        )
    if name is not None and manifest.run != name:
        raise make_untrusted_error(f"the release was signed as {manifest.run}, not as {name}")
    return manifest
