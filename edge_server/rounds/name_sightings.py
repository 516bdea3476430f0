"""Detect two devices with one name (copies of an SD card), which disconnect each other in turn.

Each process has a random token, which its births name. A restarted device has a new token and never an
earlier one; only with two devices does a token return after another one.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from schemas.messages import Birth

CERTAIN = 2  # Returns needed to be certain: a single one may be a birth that arrived very late
MAX_TOKENS, MAX_DEVICES = 4, 1000


@dataclass(frozen=True)
class Claimants:
    """The processes that used one name: the origin of each token, in order of first appearance.

    `current` is the newest token, `before` the one it replaced.
    """

    origins: Mapping[str, str]
    current: str
    before: str = ""
    returns: int = 0

    @property
    def certain(self) -> bool:
        """Whether two devices use the name."""
        return self.returns >= CERTAIN

    @property
    def later_is_there(self) -> bool:
        """Whether the current process first appeared after the one that it replaced."""
        order = list(self.origins)
        return self.before in order and order.index(self.current) > order.index(self.before)


Sightings = Mapping[str, Claimants]


def record_birth(sightings: Sightings, birth: Birth, known: tuple[str, str]) -> Sightings:
    """Record a birth; `known` is the first (token, origin). Returns the same mapping if nothing is new."""
    claimants = sightings.get(birth.device) or Claimants({known[0]: known[1]}, known[0])
    if not birth.instance or not known[0] or birth.instance == claimants.current:
        return sightings
    origins = {**claimants.origins, birth.instance: birth.origin}
    while len(origins) > MAX_TOKENS:
        del origins[next(iter(origins))]
    returns = claimants.returns + (birth.instance in claimants.origins)
    others = {name: known for name, known in sightings.items() if name != birth.device}
    while len(others) >= MAX_DEVICES:
        del others[next(iter(others))]
    return {**others, birth.device: Claimants(origins, birth.instance, claimants.current, returns)}
