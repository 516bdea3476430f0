"""Which tasks a device with a trusted key takes: signed by it, for this device, unaltered, none that is old.

Signatures do not age, so whoever has seen a task could send it again later. The newest task that was taken is
therefore kept in a file: within a run the attempts go up, and from run to run the server's clock does.
"""

from __future__ import annotations

import logging
from pathlib import Path

from pydantic import ValidationError

from edge_client.security.trusted_key import TrustedKey, untrusted
from edge_client.storage.atomic_files import write_synced
from schemas.base import Frozen
from schemas.errors import PeerError
from schemas.messages import Task
from schemas.security.manifest import Manifest, content_digest, spec_digest
from schemas.values import Reason

log = logging.getLogger(__name__)


class Newest(Frozen):
    """The newest task that was taken: its run, its attempt there, the server's clock in seconds."""

    run: str
    attempt: int
    issued_at: int


class TaskVerifier:
    """Lets a task in, or raises `PeerError`; `path` is the file that remembers the newest one."""

    def __init__(self, key: TrustedKey, federation: str, device: str, path: Path) -> None:
        self._key, self._path = key, path
        self._federation, self._device = federation, device
        self._newest = _read(path)

    def admit(self, task: Task) -> None:
        """Check a task and remember it; the reason against it is `untrusted`, or `stale-round`."""
        manifest = check_task(task, self._key, federation=self._federation, device=self._device)
        newest = Newest(run=task.run, attempt=task.attempt, issued_at=manifest.issued_at)
        check_order(newest, self._newest)
        if newest != self._newest:
            write_synced(self._path, newest.model_dump_json().encode())
            self._newest = newest


def check_task(task: Task, key: TrustedKey, *, federation: str, device: str) -> Manifest:
    """The task's manifest, if `key` has signed this very task for this device; raises `PeerError` if not."""
    if task.manifest is None:
        raise untrusted("the task is not signed: the server must sign with the key that --trust names")
    manifest = key.check(task.manifest)
    said = (manifest.what, manifest.federation, manifest.device)
    if said != ("task", federation, device):
        raise untrusted(
            f"the manifest is of a {said[0]} for {said[2]} in {said[1]}, not of this device's task"
        )
    if manifest.sha256 != content_digest(task):
        raise untrusted("the task is not the one that was signed: it was altered")
    if (manifest.run, manifest.round, manifest.attempt) != (task.run, task.round, task.attempt):
        raise untrusted("the manifest names another round than the task")
    if manifest.spec_sha256 != spec_digest(task.spec):
        raise untrusted("the manifest names another sub-model than the task")
    return manifest


def check_order(now: Newest, before: Newest | None) -> None:
    """Refuse a task that is older than one that was taken; the same one may come again."""
    if before is None:
        return
    if now.run == before.run:
        if now.attempt < before.attempt:
            detail = f"attempt {now.attempt} of run {now.run}, this device has done {before.attempt}"
            raise PeerError(detail, reason=Reason.STALE_ROUND)
    elif now.issued_at < before.issued_at:
        detail = (
            f"run {now.run} signed at {now.issued_at}, this device has done a task of {before.run} signed at"
            f" {before.issued_at}: an old task sent again, or the server's clock was set back (then remove"
            " newest-task.json from the device's state folder)"
        )
        raise PeerError(detail, reason=Reason.STALE_ROUND)


def _read(path: Path) -> Newest | None:
    try:
        return Newest.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        # Written all at once, so this is no crash of ours; without it only replays get easier.
        log.warning("%s cannot be read, older tasks may come again: %s", path, error)
        return None
