"""Verifies tasks: signed with the trusted key, for this device, unaltered, and not replayed.

A signature stays valid, so an attacker could replay an old task. The newest accepted task is therefore kept
in a file: attempts increase within a run, and the server's clock from run to run.
"""

import logging
from pathlib import Path

from pydantic import ValidationError

from edge_client.security.trusted_key import TrustedKey, make_untrusted_error
from edge_client.storage.atomic_files import write_synced
from schemas import errors, messages
from schemas.base import Frozen
from schemas.security.manifest import Manifest, content_digest, spec_digest

log = logging.getLogger(__name__)


class Newest(Frozen):
    """The newest accepted task: its run, attempt, and the server's time in seconds since 1970."""

    run: str
    attempt: int
    issued_at: int


class TaskVerifier:
    """Accepts or rejects tasks; `path` is the file of the newest accepted task."""

    def __init__(self, key: TrustedKey, federation: str, device: str, path: Path) -> None:
        self._key, self._path = key, path
        self._federation, self._device = federation, device
        self._newest = _read(path)

    def admit(self, task: messages.Task) -> None:
        """Verify and record a task; raises `PeerError` with reason `untrusted` or `stale-round`."""
        manifest = check_task(task, self._key, federation=self._federation, device=self._device)
        newest = Newest(run=task.run, attempt=task.attempt, issued_at=manifest.issued_at)
        check_order(newest, self._newest)
        if newest != self._newest:
            write_synced(self._path, newest.model_dump_json().encode())
            self._newest = newest


def check_task(task: messages.Task, key: TrustedKey, *, federation: str, device: str) -> Manifest:
    """The manifest of a task; raises `PeerError` unless `key` has signed this task for this device."""
    if task.manifest is None:
        raise make_untrusted_error(
            "the task is not signed: the server must sign with the key that --trust names"
        )
    manifest = key.check(task.manifest)
    kind, owner, target = manifest.what, manifest.federation, manifest.device
    if (kind, owner, target) != ("task", federation, device):
        raise make_untrusted_error(
            f"the manifest is of a {kind} for {target} in {owner}, not of this device's task"
        )
    if manifest.sha256 != content_digest(task):
        raise make_untrusted_error("the task is not the one that was signed: it was altered")
    if (manifest.run, manifest.round, manifest.attempt) != (task.run, task.round, task.attempt):
        raise make_untrusted_error("the manifest names another round than the task")
    if manifest.spec_sha256 != spec_digest(task.spec):
        raise make_untrusted_error("the manifest names another sub-model than the task")
    return manifest


def check_order(now: Newest, before: Newest | None) -> None:
    """Raise `PeerError` for a task older than the newest accepted one; a repetition passes."""
    if before is None:
        return
    if now.run == before.run:
        if now.attempt < before.attempt:
            detail = f"attempt {now.attempt} of run {now.run}, this device has done {before.attempt}"
            raise errors.PeerError(detail, reason=errors.Reason.STALE_ROUND)
    elif now.issued_at < before.issued_at:
        detail = (
            f"run {now.run} signed at {now.issued_at}, this device has done a task of {before.run} signed at"
            f" {before.issued_at}: an old task sent again, or the server's clock was set back (then remove"
            " newest-task.json from the device's state folder)"
        )
        raise errors.PeerError(detail, reason=errors.Reason.STALE_ROUND)


def _read(path: Path) -> Newest | None:
    try:
        return Newest.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        # Writes are atomic, so no crash has caused this; without the file only replays become easier.
        log.warning("%s cannot be read, so older tasks are not detected: %s", path, error)
        return None
