"""Installs a release into the spare slot, and tries it there: every command line is fixed here.

The server chooses an archive, never a command. pip sees no index and no configuration, only the wheels of the
archive, and builds nothing.
"""

import json
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from edge_client.agent.client_update.slots import ClientSlots, InstalledRelease
from edge_client.agent.offers.trial import Objection
from edge_client.inference.model_slots import Slots
from edge_client.storage.atomic_files import DISK_FULL
from edge_client.storage.client_archive import DamagedArchive, unpack_wheels
from edge_client.system.child_process import Commands, last_line
from schemas import errors, messages
from schemas.messages.client_update import UpdateCause
from schemas.security.client_release import ClientRelease, board_fit, misfit

log = logging.getLogger(__name__)

INSTALL_LIMIT_S, CHECK_LIMIT_S = 3600.0, 900.0
HIDDEN = ("PIP_", "PYTHON", "VIRTUAL_ENV", "NOTIFY_SOCKET", "WATCHDOG_", "EDGE_")
"""Beginnings of the names of variables that those commands do not get."""


class CommandFailed(errors.EdgeError):
    """A command has failed; `said` is the end of what it has printed."""

    def __init__(self, command: str, said: str) -> None:
        super().__init__(f"{command}: {said or 'it failed without a word'}")


class Objected(errors.EdgeError):
    """The release must not be used."""

    def __init__(self, cause: UpdateCause, detail: str) -> None:
        super().__init__(detail)
        self.cause = cause


class ReleaseInstaller:
    """Works on the spare slot of `slots`; `state` is the device's state folder.

    `python` makes the environment. With `own_pip` the environment has its own pip, else this one's is used.
    """

    def __init__(
        self, slots: ClientSlots, state: Path, *, python: str | None = None, own_pip: bool = True
    ) -> None:
        self._slots, self._state, self._own_pip = slots, state, own_pip
        self._python: str = python or str(getattr(sys, "_base_executable", sys.executable))
        self._commands = Commands()

    def install(self, offer: messages.ClientOffer, archive: Path, issued_at: int) -> Objection | None:
        """Install the archive into the spare slot, or say why not; repeating this begins anew."""
        try:
            self.fill(
                archive, InstalledRelease(name=offer.version, digest=offer.blob.digest, issued_at=issued_at)
            )
        except (errors.EdgeError, OSError) as error:
            return _objection(error)
        return None

    def fill(self, archive: Path, note: InstalledRelease) -> Path:
        """Install the archive into the spare slot and return its folder; raises `EdgeError` or `OSError`."""
        wheels = self._slots.root / "wheels"
        shutil.rmtree(wheels, ignore_errors=True)
        wheels.mkdir(parents=True)
        try:
            release = unpack_wheels(archive, wheels)
            if why := misfit(release.fits, release.python, board_fit()):
                raise Objected(UpdateCause.INCOMPATIBLE, why)
            slot = self._slots.clear_spare()
            self._make_environment(slot, wheels, release)
            self._slots.complete(slot, note)
        finally:
            shutil.rmtree(wheels, ignore_errors=True)
        return slot

    def check(self, offer: messages.ClientOffer) -> Objection | None:
        """Try the release in the spare slot, its start, its doctor, the model in use: the objection to it."""
        slot = self._slots.spare()
        try:
            if not self._slots.holds(slot.name, offer.blob.digest):
                raise Objected(UpdateCause.NOT_INSTALLED, f"{slot.name} does not hold the whole release")
            self.try_start(slot)
            self._try_doctor(slot)
            self._try_model(slot)
        except (errors.EdgeError, OSError) as error:
            return _objection(error, UpdateCause.FAILED_CHECK)
        return None

    def stop(self) -> None:
        """End what runs; the next process begins it anew."""
        self._commands.end()

    # --- the commands ---
    def _make_environment(self, slot: Path, wheels: Path, release: ClientRelease) -> None:
        bare = [] if self._own_pip else ["--without-pip"]
        self.run_command([self._python, "-m", "venv", *bare, str(slot)], INSTALL_LIMIT_S)
        python = str(slot / "bin" / "python")
        pip = [python, "-m", "pip"] if self._own_pip else [sys.executable, "-m", "pip", "--python", python]
        options = ["--no-index", "--only-binary", ":all:", "--no-cache-dir", "--no-input", "--quiet"]
        self.run_command(
            [*pip, "install", *options, "--find-links", str(wheels), release.requirement], INSTALL_LIMIT_S
        )

    def try_start(self, slot: Path) -> None:
        """Start the release's command; raises `CommandFailed`."""
        self.run_command([str(self._slots.program(slot.name)), "--version"], CHECK_LIMIT_S)

    def _try_doctor(self, slot: Path) -> None:
        """The doctor may find no failure that it does not find with the version that runs."""
        failures = dict(self._doctor(self._slots.program(slot.name)))
        if failures:
            usual = dict(self._doctor(self._slots.program(self._slots.current())))
            new = {check: detail for check, detail in failures.items() if check not in usual}
            if new:
                found = "; ".join(f"{check}: {detail}" for check, detail in new.items())
                raise Objected(UpdateCause.FAILED_CHECK, f"doctor: {found}")

    def _doctor(self, program: Path) -> Iterator[tuple[str, str]]:
        """The failures that a version's doctor finds; raises `CommandFailed` if it does not answer."""
        words = ["doctor", "--offline", "--state-dir", str(self._state), "--format", "json"]
        said = self.run_command([str(program), *words], CHECK_LIMIT_S, codes=(0, 1))
        try:
            findings = json.loads(said)
            yield from (
                (str(finding["check"]), str(finding["detail"]))
                for finding in findings
                if finding["level"] == "failure"
            )
        except (ValueError, KeyError, TypeError) as error:
            raise CommandFailed("doctor", said.strip()[-300:]) from error

    def _try_model(self, slot: Path) -> None:
        """Run the model in use a few times, if there is one."""
        model = Slots(self._state / "serving").current()
        if model is not None:
            words = ["bench", str(model.path), "--threads", "1", "--seconds", "0.05", "--format", "json"]
            self.run_command([str(self._slots.program(slot.name)), *words], CHECK_LIMIT_S)

    def run_command(self, words: list[str], limit_s: float, *, codes: tuple[int, ...] = (0,)) -> str:
        """Run a command and return its output; raises `CommandFailed`."""
        name = " ".join([Path(words[0]).name, *words[1:4]])
        try:
            ended = self._commands.run(words, limit_s, env=variables(os.environ), cwd=self._slots.root)
        except subprocess.TimeoutExpired:
            raise CommandFailed(name, f"no end within {limit_s:g} s") from None
        if ended.returncode not in codes:
            said = last_line(ended.stderr) or last_line(ended.stdout) or f"exit code {ended.returncode}"
            raise CommandFailed(name, said[:300])
        return ended.stdout


def variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment variables of those commands."""
    kept = {name: value for name, value in environment.items() if not name.startswith(HIDDEN)}
    return {**kept, "PIP_CONFIG_FILE": os.devnull, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def _objection(error: Exception, otherwise: UpdateCause = UpdateCause.NOT_INSTALLED) -> Objection:
    """The stable cause of an error, and its text."""
    match error:
        case Objected():
            return error.cause, str(error)
        case DamagedArchive():
            return UpdateCause.DAMAGED, str(error)
        case OSError() if error.errno in DISK_FULL:
            return UpdateCause.NO_SPACE, str(error)
    return otherwise, str(error)
