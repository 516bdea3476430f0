"""Updates in real virtual environments, started by the real launcher."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from edge_client.agent.client_update import launcher
from edge_client.agent.client_update.installer import ReleaseInstaller
from edge_client.agent.client_update.slots import ClientSlots
from schemas.messages import ClientOffer
from tests.edge_client.agent.client_update.board import Process, in_a_process, make_board, run_to_the_end
from tests.edge_client.agent.client_update.wheels import make_release, make_wheel, offer_of
from tests.slow import mark_slow

DEADLINE_S = 60.0


def real_installer(slots: ClientSlots) -> ReleaseInstaller:
    return ReleaseInstaller(slots, slots.root.parent / "state", own_pip=False)


def launch(root: Path) -> int:
    """Run the launcher to its end, as systemd starts it."""
    command = [root / "launch", "run", "--device-id", "pi"]
    return subprocess.run(command, timeout=DEADLINE_S, stderr=subprocess.DEVNULL).returncode


def release(folder: Path, version: str, **lines: str) -> tuple[Path, ClientOffer]:
    """A release of the small client, and its offer."""
    archive = make_release(folder / f"{version}.tar", make_wheel(folder / "wheels", version, **lines))
    return archive, offer_of(archive, version, rollout=f"r-{version}", watch_s=20.0, connect_s=20.0, starts=2)


@mark_slow
def test_a_version_that_runs_is_kept_and_one_that_fails_at_import_or_dies_later_goes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, real = make_board(tmp_path), {"make_installer": real_installer}
    archive, offer = release(tmp_path, "0.2.0")
    last = run_to_the_end(root, archive, offer, monkeypatch, **real)
    assert (last.slot, last.reports[-1].stage) == ("b", "kept")
    assert launch(root) == 0
    assert (root / "log").read_text() == "0.2.0 ['--device-id', 'pi']\n"

    # It passes its checks, for `run` alone imports what is missing, or dies.
    for version, line in (("0.3.0", "import not_there"), ("0.4.0", "os.kill(os.getpid(), 9)")):
        (root / "log").unlink()
        archive, offer = release(tmp_path, version, run=line)
        assert Process(root, archive, monkeypatch, **real).run(offer)
        trial = launcher.read_trial(root)
        assert trial is not None
        launcher.write_trial(root, {**trial, "pause_s": 0.0})
        assert launch(root) == 0
        assert [line.split()[0] for line in (root / "log").read_text().splitlines()] == [version] * 2 + [
            "0.2.0"
        ]
        last = run_to_the_end(root, archive, offer, monkeypatch, **real)
        assert (last.slot, last.reports[-1].stage, last.reports[-1].cause) == ("b", "rolled-back", "crashes")


def test_a_power_cut_in_the_middle_of_an_installation_leaves_the_former_client_and_a_second_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make_board(tmp_path)
    archive, offer = release(tmp_path, "0.2.0")

    def until_the_cut() -> None:
        made = ReleaseInstaller.run_command
        monkeypatch.setattr(
            ReleaseInstaller, "run_command", lambda *args, **named: [made(*args, **named), cut()]
        )
        run_to_the_end(root, archive, offer, monkeypatch, make_installer=real_installer)

    def cut() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    assert in_a_process(until_the_cut) == -signal.SIGKILL
    assert (root / "b" / "pyvenv.cfg").exists()
    assert launcher.program(root) == root / "a" / launcher.PROGRAM
    last = run_to_the_end(root, archive, offer, monkeypatch, make_installer=real_installer)
    assert (last.slot, last.reports[-1].stage) == ("b", "kept")
