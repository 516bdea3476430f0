"""The two environments of an installed client, and the trial that its launcher follows.

ROOT/a, ROOT/b        environments; `release.json`, written last, marks a complete one
ROOT/current          a link to the one in use: `a`, `b`, or the folder of another environment
ROOT/launch           the launcher, which starts it
ROOT/blobs, ROOT/wheels    an archive in transfer, and its wheels while they are installed
"""

import contextlib
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from edge_client.agent.client_update import launcher
from edge_client.storage.atomic_files import sync, write_synced
from schemas.messages.client_update import UpdateTerms

SLOTS = ("a", "b")
PAUSE_S = 5.0


class InstalledRelease(BaseModel):
    """`release.json` of a slot: the release's name, its archive's digest, when it was signed."""

    model_config = ConfigDict(frozen=True)

    name: str
    digest: str
    issued_at: int = 0


class ClientSlots:
    """The slots in `root`; `prefix` is the environment of this process."""

    def __init__(self, root: Path, *, prefix: Path | None = None) -> None:
        self.root = root
        self._prefix = Path(sys.prefix if prefix is None else prefix)

    # --- what there is ---
    def current(self) -> str:
        """What the link names: a slot, or another folder; empty without one."""
        return launcher.read_current(self.root)

    def running(self) -> str:
        """The slot of this process, or the folder of another environment."""
        own = self._prefix.resolve()
        return next((slot for slot in SLOTS if (self.root / slot).resolve() == own), str(self._prefix))

    def spare(self) -> Path:
        """The slot that is neither in use nor that of this process; raises `OSError` between two versions."""
        taken = {self.current(), self.running()}
        free = [slot for slot in SLOTS if slot not in taken]
        if not free:
            raise OSError(f"{self.root}: both environments are in use until the client is started again")
        return self.root / free[0]

    def program(self, slot: str) -> Path:
        """The client's command in an environment."""
        return self.root / slot / launcher.PROGRAM

    def release(self, slot: str) -> InstalledRelease | None:
        """The complete release in a slot, if there is one."""
        try:
            return InstalledRelease.model_validate_json((self.root / slot / "release.json").read_bytes())
        except (OSError, ValidationError):
            return None

    def holds(self, slot: str, digest: str) -> bool:
        """Whether a slot holds this release completely."""
        found = self.release(slot)
        return found is not None and found.digest == digest and os.access(self.program(slot), os.X_OK)

    def free_bytes(self) -> int:
        """The room for another release, once the spare slot is empty."""
        spare = self.spare()
        held = sum(path.lstat().st_size for path in spare.rglob("*")) if spare.is_dir() else 0
        return shutil.disk_usage(self.root).free + held

    # --- what changes it ---
    def clear_spare(self) -> Path:
        """Empty the spare slot; returns its folder, which does not exist."""
        spare = self.spare()
        (spare / "release.json").unlink(missing_ok=True)
        shutil.rmtree(spare, ignore_errors=True)
        return spare

    def complete(self, slot: Path, release: InstalledRelease) -> None:
        """Mark a slot as complete; everything in it is on disk before."""
        os.sync()
        write_synced(slot / "release.json", release.model_dump_json().encode())

    def begin_trial(self, slot: str, about: Mapping[str, str], terms: UpdateTerms) -> None:
        """Note the trial of a slot, then use it; repeating this changes nothing."""
        former = self.current()
        if former == slot:
            return
        trial = {"to": slot, "former": former, "started": 0, "starts": terms.starts, **about}
        launcher.write_trial(self.root, {**trial, "silent_s": terms.connect_s, "pause_s": PAUSE_S})
        launcher.point_current(self.root, slot)

    def go_back(self, to: str, former: str, cause: str, detail: str) -> bool:
        """Use the former environment, if that on trial is in use; returns whether the link has changed."""
        if self.current() != to or not os.access(self.program(former), os.X_OK):
            return False
        launcher.go_back(self.root, {"to": to, "former": former}, cause, detail)
        return True

    def trial(self) -> launcher.Trial | None:
        """The note that the launcher follows."""
        return launcher.read_trial(self.root)

    def end_trial(self) -> None:
        """The environment in use is no longer watched."""
        launcher.forget_trial(self.root)

    def touch(self) -> None:
        """Give a sign of life to the launcher."""
        with contextlib.suppress(OSError):
            (self.root / "alive").touch()

    def make(self, target: str) -> Path:
        """Write the launcher and let `current` name the first environment; returns the launcher."""
        self.root.mkdir(parents=True, exist_ok=True)
        path = self.root / "launch"
        python = Path(sys.base_prefix, "bin", f"python3.{sys.version_info.minor}")
        text = Path(launcher.__file__).read_text()
        # Isolated from variables and from the site's packages: only the standard library is used.
        write_synced(path, f"#!{python} -IS\n{text}".encode())
        path.chmod(0o755)
        sync(self.root)
        launcher.point_current(self.root, target)
        return path
