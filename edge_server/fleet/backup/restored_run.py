"""Marking a restored run, so that no other server's messages are taken for those of the one that goes on.

The server that was backed up may have gone on after the backup, and may still live. Therefore the restored
run goes on in a later epoch of the lease, and numbers its plannings above all that the other can have used.
"""

from contextlib import closing
from pathlib import Path

from edge_server.fleet.backup.contents import JOURNAL
from edge_server.fleet.backup.run_progress import progress_of
from edge_server.fleet.backup.sqlite_copies import is_sqlite
from edge_server.storage.journal import Journal

EPOCHS = 1000
"""More takeovers than happen between two backups."""


def mark_restored(run: Path, now: float) -> bool:
    """Write into the journal of an unfinished run that it was restored; returns whether it is unfinished.

    Plannings go on from `now`, in seconds since 1970: a server plans less than one round a second, so that
    a later restore of the same backup has later numbers.
    """
    path = run / JOURNAL
    if not is_sqlite(path) or (run / "summary.json").exists():
        return False
    last = progress_of(path).attempt
    if not last:
        return False
    with closing(Journal(path)) as journal:
        journal.restored(max(last, int(now)), epochs=EPOCHS, at=now)
    return True
