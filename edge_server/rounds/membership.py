"""Which devices a run or a rollout is for: a selector on their labels."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from schemas.labels import EVERY, Where, selectable
from schemas.names import site_of

OwnLabels = Mapping[str, Mapping[str, str]]  # The labels that the operator has set, by device


@dataclass(frozen=True)
class Membership:
    """The devices that `where` chooses; the operator's labels win over those that a device states."""

    where: Where = EVERY
    federation: str = ""
    sites: tuple[str, ...] = ()
    own_labels: OwnLabels = field(default_factory=dict)

    def labels(self, device: str, stated: Mapping[str, str]) -> dict[str, str]:
        return {**stated, **self.own_labels.get(device, {})}

    def selectable(self, device: str, labels: Mapping[str, str]) -> dict[str, str]:
        """The labels that a selector sees, of a device with these."""
        site = site_of(device, self.sites)
        return selectable(labels, device=device, federation=self.federation, site=site)

    def admits(self, device: str, stated: Mapping[str, str]) -> bool:
        if not self.where.requirements:
            return True
        return self.where.matches(self.selectable(device, self.labels(device, stated)))

    def __str__(self) -> str:
        return f"where = '{self.where}'"
