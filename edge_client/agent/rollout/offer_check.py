"""Whether an offered file is one that the server's key vouches for, as far as the offer itself tells."""

from __future__ import annotations

from edge_client.agent.rollout.events import Objection
from edge_client.security.trusted_key import TrustedKey
from schemas.errors import PeerError
from schemas.messages import ModelOffer
from schemas.messages.rollout_terms import Cause


def objection_to(offer: ModelOffer, key: TrustedKey | None) -> Objection | None:
    """What speaks against an offer before it is fetched; a device without a key takes what the broker brings.

    The digest that is signed is the one that the fetched bytes must have.
    """
    if key is None:
        return None
    if offer.manifest is None:
        return Cause.UNTRUSTED, "the file is not signed: the server must sign with the key that --trust names"
    try:
        manifest = key.check(offer.manifest)
    except PeerError as error:
        return Cause.UNTRUSTED, str(error)
    said = (manifest.what, manifest.federation, manifest.tier, manifest.sha256)
    if said != ("tier-export", offer.federation, offer.tier, offer.blob.digest):
        return Cause.UNTRUSTED, f"what is signed is a {said[0]} of tier {said[2]} in {said[1]}, not this file"
    return None
