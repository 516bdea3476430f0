"""What speaks against an offered release before its archive is fetched."""

from edge_client.agent.client_update.events import Objection
from edge_client.agent.client_update.slots import ClientSlots
from edge_client.security.release_check import check_release
from edge_client.security.trusted_key import TrustedKey
from schemas.errors import PeerError
from schemas.messages import ClientOffer
from schemas.messages.client_update import UpdateCause
from schemas.security.client_release import board_fit, misfit

COMPILED_SHARE = 0.4
"""What compiled modules add to the unpacked wheels; a third was measured with numpy and onnxruntime."""
PIP_BYTES = 32_000_000
"""The environment's own pip."""


def objection_to(offer: ClientOffer, key: TrustedKey | None, slots: ClientSlots) -> Objection | None:
    """The objection to an offer; the fetched bytes must have the digest that is signed."""
    if key is None:
        return UpdateCause.UNTRUSTED, "this device trusts no key: set `trust` in client.toml to signing.pub"
    if offer.manifest is None:
        return UpdateCause.UNTRUSTED, "the release is not signed"
    try:
        manifest = check_release(
            offer.manifest, key, sha256=offer.blob.digest, federation=offer.federation, name=offer.version
        )
    except PeerError as error:
        return UpdateCause.UNTRUSTED, str(error)
    running = slots.release(slots.running())
    if running is not None and manifest.issued_at < running.issued_at:
        why = f"it was signed before {running.name}, which runs: make it again to go back on purpose"
        return UpdateCause.SUPERSEDED, why
    if why := misfit(offer.fits, offer.python, board_fit()):
        return UpdateCause.INCOMPATIBLE, why
    return _no_room(offer, slots)


def _no_room(offer: ClientOffer, slots: ClientSlots) -> Objection | None:
    """Room for the archive, its wheels, and the environment that they make."""
    needed = 2 * offer.blob.size + int((1 + COMPILED_SHARE) * offer.installed_bytes) + PIP_BYTES
    free = slots.free_bytes()
    if free >= needed:
        return None
    return (
        UpdateCause.NO_SPACE,
        f"{needed / 1e6:.0f} MB are needed in {slots.root}, {free / 1e6:.0f} MB are free",
    )
