"""Enters enrolled devices in the inventory of a service folder, and in its audit log."""

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

from edge_server.storage import audit_log
from edge_server.storage.inventory.inventory import Inventory
from edge_server.storage.service_folder import ServiceFolder, default_service_folder


class EnrolmentEntries:
    """Enters devices of one federation."""

    def __init__(self, folder: ServiceFolder, inventory: Inventory, federation: str) -> None:
        self._folder, self._inventory, self._federation = folder, inventory, federation

    def has(self, device: str) -> bool:
        known = self._inventory.device(self._federation, device)
        return known is not None and known.removed_at is None

    def enter(
        self,
        device: str,
        *,
        labels: Mapping[str, str | None],
        note: str | None,
        at: float,
        until: float | None,
        who: str,
    ) -> None:
        """A device was enrolled at `at` with a certificate until `until`, or has got a code (None)."""
        known = self._inventory.device(self._federation, device)
        before = {} if known is None else dict(known.own_labels)
        after = {key: value for key, value in {**before, **labels}.items() if value is not None}
        stated = {"note": note} if note is not None else {}
        ends = {"certificate_until": until} if until is not None else {}
        changes = {"enrolled_at": round(at), "removed_at": None, "revoked_at": None, **ends, **stated}
        self._inventory.add(self._federation, device, own_labels=after, **changes)
        audit_log.append_entry(
            self._folder.audit,
            who=who,
            what="enroll",
            target=f"{self._federation}/{device}",
            before=None if known is None else {"labels": before, "note": known.note},
            after={"labels": after, **stated, **({"certificate_until": until} if until else {})},
        )

    def record_revocation(self, device: str, *, certificates: int, at: float, who: str) -> None:
        """The certificates of a device were revoked at `at`."""
        if self._inventory.device(self._federation, device) is not None:
            self._inventory.add(self._federation, device, revoked_at=at)
        audit_log.append_entry(
            self._folder.audit,
            who=who,
            what="revoke",
            target=f"{self._federation}/{device}",
            before={"certificates": certificates},
            after={"certificates": 0},
            at=at,
        )


@contextmanager
def enrolment_entries(path: Path | None, federation: str) -> Iterator[EnrolmentEntries | None]:
    """Entries in the folder that the user names, or in the default one; None if that does not exist."""
    folder = ServiceFolder(path or default_service_folder())
    if path is None and not folder.path.is_dir():
        yield None
        return
    with closing(Inventory(folder.inventory)) as inventory:
        yield EnrolmentEntries(folder, inventory, federation)
