"""The device's part in an update: real files, power cuts at each step, versions that do not connect."""

import os
import shutil
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from edge_client.agent.client_update import launcher
from edge_client.agent.client_update.installation import ReleaseTrial
from edge_client.agent.offers import runtime
from schemas.messages import ClientOffer, ClientWithdrawal
from schemas.messages.client_update import UpdateCause, UpdateStage
from schemas.security.client_release import board_fit
from tests.edge_client.agent.client_update import board
from tests.edge_client.agent.client_update.wheels import manifest_of, offer_of
from tests.edge_client.signed import SERVER, STRANGER
from tests.slow import slow

LIMITS = {"watch_s": 20.0, "connect_s": 20.0}


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "release.tar"
    path.write_bytes(os.urandom(10_000))
    return path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return board.make_board(tmp_path)


def offer(archive: Path, **more: Any) -> ClientOffer:
    return offer_of(archive, "0.2.0", **LIMITS).model_copy(update=more)


def test_a_release_is_installed_and_kept_and_the_next_one_takes_the_other_slot(
    root: Path, archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = board.run_to_the_end(root, archive, offer(archive), monkeypatch)
    assert (last.slot, last.reports[-1].stage) == ("b", "kept")
    assert not (root / "trial.json").exists()
    assert list((root / "blobs").iterdir()) == []
    newer = tmp_path / "newer.tar"
    newer.write_bytes(os.urandom(9_000))
    last = board.run_to_the_end(root, newer, offer(newer, rollout="r-2"), monkeypatch)
    assert (last.slot, last.reports[-1].stage, launcher.read_current(root)) == ("a", "kept", "a")


def test_a_version_that_does_not_connect_goes_back_and_the_former_one_says_why(
    root: Path, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = board.run_to_the_end(root, archive, offer(archive), monkeypatch, connects=lambda slot: slot == "a")
    assert last.slot == "a"
    assert (last.reports[-1].stage, last.reports[-1].cause) == ("rolled-back", "no-connection")
    assert not (root / "trial.json").exists()


def test_a_version_that_the_launcher_gave_up_is_reported_by_the_former_one(
    root: Path, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert board.Process(root, archive, monkeypatch).run(offer(archive))
    trial = launcher.read_trial(root)
    assert trial is not None
    launcher.go_back(root, trial, "hangs", "no sign of life for 20 s")
    last = board.run_to_the_end(root, archive, offer(archive), monkeypatch)
    assert (last.slot, last.reports[-1].stage, last.reports[-1].cause) == ("a", "rolled-back", "hangs")


def test_a_kept_release_is_withdrawn_and_the_former_one_runs(
    root: Path, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    board.run_to_the_end(root, archive, offer(archive), monkeypatch)
    withdrawal = ClientWithdrawal(
        federation="home", device="pi", rollout="r-1", version="0.2.0", detail="bad"
    )
    last = board.Process(root, archive, monkeypatch)
    last.part.on_connected()
    last.part.receive(withdrawal)
    last.part.tick(training=False)
    assert launcher.read_current(root) == "a"
    last = board.run_to_the_end(root, archive, withdrawal, monkeypatch)
    assert (last.slot, last.reports[-1].stage, last.reports[-1].cause) == ("a", "rolled-back", "withdrawn")


def test_a_release_that_cannot_be_withdrawn_any_more_is_not_said_to_be_gone(
    root: Path, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    board.run_to_the_end(root, archive, offer(archive), monkeypatch)
    last = board.Process(root, archive, monkeypatch)
    last.run(offer(archive, rollout="r-2", version="0.3.0"))
    assert (last.reports[-1].rollout, last.reports[-1].stage) == ("r-2", "refused")
    last.part.receive(
        ClientWithdrawal(federation="home", device="pi", rollout="r-1", version="0.2.0", detail="bad")
    )
    report = last.reports[-1]
    assert (report.rollout, report.stage, report.cause) == ("r-1", "kept", None)
    assert "this one stays" in report.detail


@pytest.mark.parametrize(
    ("more", "cause"),
    [
        ({"manifest": None}, UpdateCause.UNTRUSTED),
        ({"version": "0.3.0"}, UpdateCause.UNTRUSTED),
        ({"fits": ("cp311-riscv64",)}, UpdateCause.INCOMPATIBLE),
        ({"fits": (board_fit(),), "python": ">=3.99"}, UpdateCause.INCOMPATIBLE),
        ({"fits": (board_fit(),), "installed_bytes": 10**15}, UpdateCause.NO_SPACE),
    ],
)
def test_what_is_not_for_this_board_is_refused_before_it_is_fetched(
    root: Path, archive: Path, monkeypatch: pytest.MonkeyPatch, more: Any, cause: UpdateCause
) -> None:
    process = board.Process(root, archive, monkeypatch)
    process.run(offer(archive, **more))
    assert (process.reports[-1].stage, process.reports[-1].cause) == (UpdateStage.REFUSED, cause)
    assert launcher.read_current(root) == "a"


def test_without_a_trusted_key_and_by_another_key_nothing_is_installed(
    root: Path, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = board.Process(root, archive, monkeypatch, trust=None)
    process.run(offer(archive))
    assert process.reports[-1].cause is UpdateCause.UNTRUSTED
    process = board.Process(root, archive, monkeypatch)
    forged = STRANGER.sign(manifest_of(archive, "0.2.0"))
    process.run(offer(archive, rollout="r-2", manifest=forged))
    assert process.reports[-1].cause is UpdateCause.UNTRUSTED


def test_a_release_that_was_signed_before_the_running_one_is_refused(
    root: Path, archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    board.run_to_the_end(root, archive, offer(archive), monkeypatch)
    old = tmp_path / "old.tar"
    old.write_bytes(b"old" * 500)
    signed = SERVER.sign(manifest_of(old, "0.2.0", issued_at=1_600_000_000))
    process = board.Process(root, old, monkeypatch)
    process.run(offer(old, rollout="r-0", manifest=signed))
    assert (process.reports[-1].stage, process.reports[-1].cause) == ("refused", "superseded")


def test_an_update_that_a_newer_version_has_written_can_still_be_read(
    root: Path, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    board.Process(root, archive, monkeypatch).run(offer(archive))
    path = root / "update.json"
    path.write_text(
        path.read_text().replace('"stage"', '"later":1,"stage"').replace('{"kind"', '{"new":2,"kind"')
    )
    assert '"new":2' in path.read_text()
    update = runtime.TrialFile(path, ReleaseTrial).load("home", "pi")
    assert update is not None
    assert update.stage is UpdateStage.SWITCHED


# --- power cuts ---
ACTS = (
    (launcher, "write_trial"),
    (launcher, "point_current"),
    (launcher, "forget_trial"),
    (runtime, "write_synced"),
)


class PowerCut:
    """Kills this process at the `at`-th moment before or after one of its writes."""

    def __init__(self, at: int) -> None:
        self._left = at

    def __call__(self) -> None:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def around(self, act: Callable[..., Any]) -> Callable[..., Any]:
        """The act with two moments."""

        def cut_act(*args: Any, **named: Any) -> Any:
            self()
            result = act(*args, **named)
            self()
            return result

        return cut_act


@pytest.mark.parametrize("good", [slow(True), False])
def test_a_power_cut_at_any_moment_leaves_a_working_client_and_the_same_end(
    root: Path, archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, good: bool
) -> None:
    def connects(slot: str) -> bool:
        return good or slot == "a"

    def until_the_cut(moment: int) -> None:
        cut = PowerCut(moment)
        for module, name in ACTS:
            monkeypatch.setattr(module, name, cut.around(getattr(module, name)))
        installer = {"make_installer": lambda slots: board.FakeInstaller(slots, cut)}
        board.run_to_the_end(root, archive, offer(archive), monkeypatch, connects=connects, **installer)

    whole, moment, ended = tmp_path / "whole", 1, -signal.SIGKILL
    shutil.copytree(root, whole, symlinks=True)
    while ended == -signal.SIGKILL:
        ended = board.in_a_process(partial(until_the_cut, moment))
        assert ended in (0, -signal.SIGKILL), f"moment {moment}"
        assert launcher.program(root) is not None
        last = board.run_to_the_end(root, archive, offer(archive), monkeypatch, connects=connects)
        expected = ("b", "kept") if good else ("a", "rolled-back")
        assert (last.slot, last.reports[-1].stage) == expected, f"moment {moment}"
        assert not (root / "trial.json").exists()
        shutil.rmtree(root)
        shutil.copytree(whole, root, symlinks=True)
        moment += 1
    assert moment > 25
