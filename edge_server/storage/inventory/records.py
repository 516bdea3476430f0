"""The devices of an inventory as values."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from schemas.base import Frozen, Labels, Name
from schemas.errors import ConfigError
from schemas.selectors import selectable
from schemas.values import BoardState, DriftFinding, SkippedFiles, UnixSeconds


class InventoryDevice(Frozen):
    """A device as the inventory knows it; times are in seconds since 1970.

    `own_labels` were set by the operator, `stated_labels` by the device. `site` is the site of its gateway.
    `shown` are texts of its birth by their labels on the page.
    `replaces` names the dead board whose place the device took, `removed_at` is when the operator removed it.
    """

    federation: Name
    device: Name
    own_labels: Labels = Field(default_factory=dict)
    stated_labels: Labels = Field(default_factory=dict)
    note: str = ""
    site: str = ""
    enrolled_at: UnixSeconds | None = None
    certificate_until: UnixSeconds | None = None
    revoked_at: UnixSeconds | None = None
    seen_at: UnixSeconds | None = None
    alive: bool = False
    machine: str = ""
    versions: Mapping[str, str] = {}
    model: str = ""
    disk_free_bytes: int | None = None
    board: BoardState | None = None
    drift: DriftFinding | None = None
    skipped: SkippedFiles | None = None
    shown: Mapping[str, str] = {}
    replaces: str = ""
    removed_at: UnixSeconds | None = None

    @property
    def labels(self) -> dict[str, str]:
        """The labels of the device; the operator's win over those that the device states."""
        return {**self.stated_labels, **self.own_labels}

    @property
    def free_disk(self) -> int | None:
        """Free bytes of the disk with the device's state: as of its telemetry, else of its birth."""
        reported = None if self.board is None else self.board.disk_free_bytes
        return self.disk_free_bytes if reported is None else reported

    @property
    def selectable(self) -> dict[str, str]:
        return selectable(self.labels, device=self.device, federation=self.federation, site=self.site)


@dataclass(frozen=True)
class Change:
    """Changed fields of a device before and after; `before` is None for a new device."""

    federation: str
    device: str
    before: Mapping[str, Any] | None
    after: Mapping[str, Any]


MAX_LETTERS = 500


def checked_note(note: str) -> str:
    """The note without space around it; raises `ConfigError` if it is no printable line."""
    note = note.strip()
    if len(note) > MAX_LETTERS:
        raise ConfigError(f"the note has {len(note)} letters; at most {MAX_LETTERS} are kept")
    if not note.isprintable():
        raise ConfigError(
            f"the note {note[:40]!r} has a line break or control characters", remedy="write one line"
        )
    return note
