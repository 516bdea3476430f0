"""Checks the signature of an offered file."""

from __future__ import annotations

from edge_client.agent.rollout.events import Objection
from edge_client.security.trusted_key import TrustedKey
from schemas.errors import PeerError
from schemas.messages import ModelOffer
from schemas.messages.rollout_terms import Cause


def objection_to(offer: ModelOffer, key: TrustedKey | None) -> Objection | None:
    """The objection to an offer before its file is fetched; without a key there is none.

    The fetched bytes must have the digest that is signed.
    """
    if key is None:
        return None
    if offer.manifest is None:
        return Cause.UNTRUSTED, "the file is not signed: the server must sign with the key that --trust names"
    try:
        manifest = key.check(offer.manifest)
    except PeerError as error:
        return Cause.UNTRUSTED, str(error)
    named = (manifest.what, manifest.federation, manifest.tier, manifest.sha256)
    if named != ("tier-export", offer.federation, offer.tier, offer.blob.digest):
        return (
            Cause.UNTRUSTED,
            f"what is signed is a {named[0]} of tier {named[2]} in {named[1]}, not this file",
        )
    return None
