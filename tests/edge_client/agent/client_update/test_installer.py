"""Installing a release into a real environment, and what is refused with which cause."""

import subprocess
import threading
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest

from edge_client.agent.client_update.installer import CommandFailed, ReleaseInstaller, variables
from edge_client.agent.client_update.slots import ClientSlots
from edge_client.agent.offers.trial import Objection
from schemas.messages.client_update import UpdateCause
from tests.edge_client.agent.client_update.wheels import make_release, make_wheel, offer_of

FAILING = 'print(\'[{"check": "disk", "level": "failure", "detail": "full", "remedy": ""}]\')'


class Board:
    """A board whose running client is a script, with one release to install."""

    def __init__(self, folder: Path) -> None:
        self.slots = ClientSlots(folder / "client", prefix=folder / "first")
        self.slots.make(str(folder / "first"))
        self.doctor_says("[]")
        self.installer = ReleaseInstaller(self.slots, folder / "state", own_pip=False)
        self._folder = folder

    def doctor_says(self, findings: str) -> None:
        """Let the running client's doctor print this."""
        program = self.slots.program(self.slots.current())
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(f"#!/bin/sh\necho '{findings}'\n")
        program.chmod(0o755)

    def install(self, archive: Path) -> Objection | None:
        """Install an archive."""
        return self.installer.install(offer_of(archive, "0.2.0"), archive, 7)


@pytest.fixture
def board(tmp_path: Path) -> Board:
    return Board(tmp_path)


def cause_of(objection: Objection | None) -> StrEnum:
    """The cause of a refusal."""
    assert objection is not None
    return objection[0]


@pytest.fixture(scope="module")
def bad_doctor(tmp_path_factory: pytest.TempPathFactory) -> tuple[Board, Path]:
    """A release whose doctor finds a failure, installed."""
    folder = tmp_path_factory.mktemp("board")
    board, wheel = Board(folder), make_wheel(folder / "wheels", "0.2.0", doctor=FAILING)
    archive = make_release(folder / "release.tar", wheel)
    assert board.install(archive) is None
    return board, archive


def test_a_release_is_installed_into_the_spare_slot_from_its_wheels_alone(bad_doctor) -> None:
    board, archive = bad_doctor
    offer = offer_of(archive, "0.2.0")
    assert board.slots.holds("a", offer.blob.digest)
    release = board.slots.release("a")
    assert release is not None
    assert (release.name, release.issued_at) == ("0.2.0", 7)
    assert not (board.slots.root / "wheels").exists()


def test_a_doctor_that_finds_more_than_that_of_the_running_version_refuses_the_release(bad_doctor) -> None:
    board, archive = bad_doctor
    objection = board.installer.check(offer_of(archive, "0.2.0"))
    assert cause_of(objection) is UpdateCause.FAILED_CHECK
    assert "disk: full" in objection[1]


def test_a_failure_that_the_running_version_has_as_well_refuses_nothing(bad_doctor) -> None:
    board, archive = bad_doctor
    board.doctor_says('[{"check": "disk", "level": "failure", "detail": "full", "remedy": ""}]')
    assert board.installer.check(offer_of(archive, "0.2.0")) is None
    board.doctor_says("[]")


def test_a_slot_that_holds_another_release_passes_no_check(bad_doctor, tmp_path: Path) -> None:
    board, _ = bad_doctor
    other = make_release(tmp_path / "other.tar", make_wheel(tmp_path, "0.3.0"))
    assert cause_of(board.installer.check(offer_of(other, "0.3.0"))) is UpdateCause.NOT_INSTALLED


def test_a_release_that_fails_at_import_passes_no_check(board: Board, tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, "0.2.0", head="import a_module_that_is_not_there")
    archive = make_release(tmp_path / "release.tar", wheel)
    assert board.install(archive) is None
    objection = board.installer.check(offer_of(archive, "0.2.0"))
    assert cause_of(objection) is UpdateCause.FAILED_CHECK
    assert "a_module_that_is_not_there" in objection[1]


def test_wheels_for_another_processor_are_incompatible(board: Board, tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, "0.2.0", tags="cp311-cp311-manylinux_2_28_riscv64")
    assert cause_of(board.install(make_release(tmp_path / "release.tar", wheel))) is UpdateCause.INCOMPATIBLE
    assert not (board.slots.root / "a").exists()


def test_a_damaged_archive_is_cause_of(board: Board, tmp_path: Path) -> None:
    archive = make_release(tmp_path / "release.tar", make_wheel(tmp_path, "0.2.0"))
    data = archive.read_bytes()
    for broken in (data[:700], b"junk" * 300, data.replace(b"small_client", b"other_client")):
        archive.write_bytes(broken)
        assert cause_of(board.install(archive)) is UpdateCause.DAMAGED


def test_a_wheel_that_needs_what_the_release_lacks_is_not_installed(board: Board, tmp_path: Path) -> None:
    archive = make_release(tmp_path / "release.tar", make_wheel(tmp_path, "0.2.0"), version="0.9.9")
    assert cause_of(board.install(archive)) is UpdateCause.NOT_INSTALLED
    assert board.slots.release("a") is None


def test_a_full_disk_is_named(board: Board, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    archive = make_release(tmp_path / "release.tar", make_wheel(tmp_path, "0.2.0"))
    monkeypatch.setattr("edge_client.agent.client_update.installer.unpack_wheels", full)
    assert cause_of(board.install(archive)) is UpdateCause.NO_SPACE


def test_the_commands_see_neither_settings_of_pip_nor_those_of_the_service() -> None:
    seen = variables({"PIP_INDEX_URL": "x", "PYTHONPATH": "x", "NOTIFY_SOCKET": "x", "PATH": "/bin"})
    assert seen == {"PATH": "/bin", "PIP_CONFIG_FILE": "/dev/null", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def test_nothing_runs_after_a_stop(board: Board, tmp_path: Path) -> None:
    archive = make_release(tmp_path / "release.tar", make_wheel(tmp_path, "0.2.0"))
    board.installer.stop()
    assert cause_of(board.install(archive)) is UpdateCause.NOT_INSTALLED


def test_a_stop_ends_a_command_that_is_being_started(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    popen, stopping = subprocess.Popen, threading.Thread(target=board.installer.stop)

    def start(*args: Any, **options: Any) -> subprocess.Popen[str]:
        stopping.start()
        stopping.join(0.2)  # Long enough for a stop that does not wait for the start.
        return popen(*args, **options)

    monkeypatch.setattr("edge_client.system.child_process.subprocess.Popen", start)
    with pytest.raises(CommandFailed, match="exit code -9"):
        board.installer.run_command(["sleep", "20"], 20)
    stopping.join()
