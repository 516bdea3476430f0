"""Two devices with one name, as copies of one card make them: they throw each other off the broker in turn.

A process has a token of its own, which its births name. A device that was restarted comes with a new token
and never with an old one again; only where two are alive does a token come back after another. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from schemas.messages import Birth

CERTAIN = 2
"""So many returns make it certain: one may be a birth that was very late."""
MOST_TOKENS, MOST_DEVICES = 4, 1000


@dataclass(frozen=True)
class Claimants:
    """Who has come under one name: where each token was seen, whoever came first at the front.

    `current` came last, after the one `before` it.
    """

    origins: Mapping[str, str]
    current: str
    before: str = ""
    returns: int = 0

    @property
    def certain(self) -> bool:
        """Whether there are two of them."""
        return self.returns >= CERTAIN

    @property
    def later_is_there(self) -> bool:
        """Whether the one who came last is the one who first came after the other."""
        order = list(self.origins)
        return self.before in order and order.index(self.current) > order.index(self.before)


Sightings = Mapping[str, Claimants]


def record_birth(sightings: Sightings, birth: Birth, known: tuple[str, str]) -> Sightings:
    """Take a birth; `known` was there first, as token and origin. The very same where nothing is new."""
    claimants = sightings.get(birth.device) or Claimants({known[0]: known[1]}, known[0])
    if not birth.instance or not known[0] or birth.instance == claimants.current:
        return sightings
    origins = {**claimants.origins, birth.instance: birth.origin}
    while len(origins) > MOST_TOKENS:
        del origins[next(iter(origins))]
    returns = claimants.returns + (birth.instance in claimants.origins)
    others = {name: one for name, one in sightings.items() if name != birth.device}
    while len(others) >= MOST_DEVICES:
        del others[next(iter(others))]
    return {**others, birth.device: Claimants(origins, birth.instance, claimants.current, returns)}
