"""An update of the client on its device, transition by transition."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from edge_client.agent.client_update.installation import ReleaseState, ReleaseTrial
from edge_client.agent.offers import trial as offers
from edge_client.agent.offers.machine import MAX_RESTARTS, step
from edge_client.agent.session import events
from schemas.messages import BlobRequest, ClientOffer, ClientReport, ClientWithdrawal
from schemas.messages.client_update import UpdateCause, UpdateStage, UpdateTerms
from schemas.tensors.chunks import BlobRef, Chunk, digest_of
from tests.chunk_bits import chunks_of

DATA = b"wheel" * 20_000
REF = BlobRef(digest=digest_of(DATA), size=len(DATA), chunk_bytes=65_536)
TERMS = UpdateTerms(watch_s=60.0, connect_s=20.0)
OFFER = ClientOffer(federation="home", device="pi", rollout="r-1", version="0.2.0", blob=REF, terms=TERMS)
WITHDRAWAL = ClientWithdrawal(
    federation="home", device="pi", rollout="r-1", version="0.2.0", detail="by hand"
)


INSTALL, CHECK = offers.Work(OFFER, UpdateStage.INSTALLED), offers.Work(OFFER, UpdateStage.CHECKED)
IN_B = offers.Switched({"slot": "b", "former": "a"})


@dataclass
class Device:
    """The machine, its clock and the commands it has returned; `restart` is another process."""

    now: float = 0.0
    state: ReleaseState = field(
        default_factory=lambda: ReleaseState("home", "pi", version="0.1.0", connected=True)
    )
    done: list[Any] = field(default_factory=list)

    def do(self, event: offers.Event) -> list[Any]:
        """Make one step and return its commands without the messages."""
        self.state, commands = step(self.state, event, self.now)
        self.done += commands
        return [command for command in commands if not isinstance(command, events.SendMessage)]

    def fetch(self) -> list[Any]:
        """Receive the offer and every chunk of the archive."""
        self.do(offers.Offered(OFFER))
        for index in range(REF.chunks):
            data = DATA[index * REF.chunk_bytes :][: REF.chunk_size(index)]
            self.do(events.ChunkArrived(Chunk(REF.digest[:16], index, data)))
        return self.do(events.BlobChecked(REF.digest, sound=True))

    def switch(self) -> list[Any]:
        """Continue until the process must end for the new version."""
        self.fetch()
        self.do(offers.Worked(INSTALL))
        self.do(offers.Worked(CHECK))
        return self.do(IN_B)

    def restart(
        self, *, runs_it: bool, back: offers.Objection | None = None, connected: bool = True
    ) -> list[Any]:
        """The next process, with the saved update."""
        trial = self.trial
        self.state = ReleaseState("home", "pi", version="0.2.0" if runs_it else "0.1.0", connected=connected)
        return self.do(offers.Restored(trial, runs_it=runs_it, back=back))

    def wait(self, seconds: float) -> list[Any]:
        """Let time pass, then tick."""
        self.now += seconds
        return self.do(events.Tick())

    @property
    def trial(self) -> ReleaseTrial:
        assert self.state.trial is not None
        return self.state.trial

    @property
    def reports(self) -> list[ClientReport]:
        """The reports sent so far."""
        messages = [command.message for command in self.done if isinstance(command, events.SendMessage)]
        return [message for message in messages if isinstance(message, ClientReport)]


def test_a_good_release_is_fetched_installed_checked_switched_to_watched_and_kept() -> None:
    device = Device()
    assert device.fetch() == [INSTALL]
    assert device.do(offers.Worked(INSTALL)) == [CHECK]
    assert device.do(offers.Worked(CHECK)) == [offers.Switch(device.trial)]
    assert device.do(IN_B) == [offers.Restart()]
    assert device.restart(runs_it=True) == [offers.Switch(device.trial)]
    assert device.do(offers.Switched({"slot": "b", "former": ""})) == []
    assert device.wait(TERMS.watch_s) == [offers.CleanUp()]
    assert [report.stage for report in device.reports] == [
        "offered",
        "fetched",
        "installed",
        "checked",
        "switched",
        "switched",
        "kept",
    ]
    assert (device.reports[-1].running, device.trial.former) == ("0.2.0", "a")


def test_only_missing_chunks_are_requested_after_a_restart() -> None:
    device = Device()
    device.do(offers.Offered(OFFER))
    trial = device.trial
    device.state = ReleaseState("home", "pi", connected=True)
    device.done = []
    device.do(offers.Restored(trial, present=chunks_of(0b01)))
    (request,) = [command.message for command in device.done]
    assert isinstance(request, BlobRequest)
    assert (request.first, request.count) == (1, REF.chunks - 1)


@pytest.mark.parametrize("cause", [UpdateCause.UNTRUSTED, UpdateCause.INCOMPATIBLE, UpdateCause.NO_SPACE])
def test_an_offer_with_an_objection_is_refused_without_a_download(cause: UpdateCause) -> None:
    device = Device()
    assert device.do(offers.Offered(OFFER, objection=(cause, "why"))) == [offers.CleanUp()]
    assert (device.trial.stage, device.reports[-1].cause) == (UpdateStage.REFUSED, cause)
    assert device.state.receiving is None


def test_a_release_that_runs_already_is_kept_despite_a_withdrawal() -> None:
    device = Device()
    device.do(offers.Offered(OFFER, in_use=REF.digest))
    assert (device.reports[-1].stage, device.reports[-1].had_it) == ("kept", True)
    assert device.do(offers.Withdrawn(WITHDRAWAL)) == []
    assert device.trial.stage is UpdateStage.KEPT


def test_a_release_that_fails_to_install_or_a_check_is_refused_and_never_switched_to() -> None:
    for work in (INSTALL, CHECK):
        device = Device()
        device.fetch()
        if work == CHECK:
            device.do(offers.Worked(INSTALL))
        assert device.do(offers.Worked(work, objection=(UpdateCause.FAILED_CHECK, "import"))) == [
            offers.CleanUp()
        ]
        assert device.trial.stage is UpdateStage.REFUSED
        assert not any(isinstance(command, offers.Switch | offers.Restart) for command in device.done)


def test_results_of_another_rollout_are_ignored() -> None:
    device = Device()
    device.fetch()
    other = offers.Work(OFFER.model_copy(update={"rollout": "r-0"}), UpdateStage.INSTALLED)
    assert device.do(offers.Worked(other)) == []
    assert device.do(offers.Worked(other, objection=(UpdateCause.DAMAGED, ""))) == []
    assert device.trial.stage is UpdateStage.FETCHED


@pytest.mark.parametrize("stage", [UpdateStage.FETCHED, UpdateStage.INSTALLED])
def test_a_power_cut_while_installing_begins_that_step_again_but_not_forever(stage: UpdateStage) -> None:
    device = Device()
    device.fetch()
    if stage is UpdateStage.INSTALLED:
        device.do(offers.Worked(INSTALL))
    again = INSTALL if stage is UpdateStage.FETCHED else CHECK
    for _ in range(MAX_RESTARTS):
        assert device.restart(runs_it=False) == [again]
    assert device.restart(runs_it=False) == [offers.CleanUp()]
    assert (device.trial.stage, device.trial.cause) == (UpdateStage.REFUSED, UpdateCause.CRASHES)


def test_a_power_cut_before_the_switch_switches_at_the_next_start() -> None:
    device = Device()
    device.fetch()
    device.do(offers.Worked(INSTALL))
    device.do(offers.Worked(CHECK))
    assert device.restart(runs_it=False) == [offers.Switch(device.trial)]
    assert device.do(IN_B) == [offers.Restart()]


def test_a_power_cut_after_the_switch_and_before_it_was_saved_goes_on_in_the_new_version() -> None:
    device = Device()
    device.fetch()
    device.do(offers.Worked(INSTALL))
    device.do(offers.Worked(CHECK))
    assert device.restart(runs_it=True) == [offers.Switch(device.trial)]
    assert device.do(IN_B) == []
    assert (device.trial.stage, device.trial.former) == (UpdateStage.SWITCHED, "a")


def test_the_former_version_reports_why_the_launcher_has_gone_back() -> None:
    device = Device()
    device.switch()
    assert device.restart(runs_it=False, back=(UpdateCause.CRASHES, "3 starts")) == [offers.CleanUp()]
    report = device.reports[-1]
    assert (report.stage, report.cause, report.detail, report.running) == (
        "rolled-back",
        "crashes",
        "3 starts",
        "0.1.0",
    )


def test_a_version_that_does_not_connect_in_time_goes_back_by_itself() -> None:
    device = Device()
    device.switch()
    device.restart(runs_it=True, connected=False)
    device.do(IN_B)
    assert device.wait(TERMS.connect_s - 1) == []
    (back,) = device.wait(1)
    assert isinstance(back, offers.RollBack)
    assert (back.trial.cause, back.trial.going_back) == (UpdateCause.NO_CONNECTION, True)
    assert device.do(offers.RolledBack(restarts=True)) == [offers.Restart()]
    assert device.restart(runs_it=False) == [offers.CleanUp()]
    assert (device.reports[-1].stage, device.reports[-1].cause) == ("rolled-back", "no-connection")


def test_only_connected_time_counts_for_the_watch() -> None:
    device = Device()
    device.switch()
    device.restart(runs_it=True)
    device.do(IN_B)
    device.wait(40)
    device.do(events.Disconnected())
    assert device.wait(19) == []
    device.do(events.Connected())
    assert device.wait(19) == []
    assert device.wait(1) == [offers.CleanUp()]


def test_a_return_that_a_power_cut_has_interrupted_is_finished() -> None:
    device = Device()
    device.switch()
    device.restart(runs_it=True)
    device.do(offers.Withdrawn(WITHDRAWAL))
    assert [type(command) for command in device.restart(runs_it=True)] == [offers.RollBack]
    assert device.do(offers.RolledBack(restarts=True)) == [offers.Restart()]


def test_a_kept_release_can_be_withdrawn() -> None:
    device = Device()
    device.switch()
    device.restart(runs_it=True)
    device.do(IN_B)
    device.wait(TERMS.watch_s)
    assert [type(command) for command in device.do(offers.Withdrawn(WITHDRAWAL))] == [offers.RollBack]
    device.do(offers.RolledBack(restarts=True))
    device.restart(runs_it=False)
    assert (device.reports[-1].stage, device.reports[-1].cause) == ("rolled-back", "withdrawn")


def test_a_withdrawal_before_the_restart_needs_no_restart() -> None:
    device = Device()
    device.switch()
    device.do(offers.Withdrawn(WITHDRAWAL))
    assert device.do(offers.RolledBack()) == [offers.CleanUp()]
    assert device.trial.stage is UpdateStage.ROLLED_BACK


def test_a_withdrawal_while_fetching_refuses_the_release() -> None:
    device = Device()
    device.do(offers.Offered(OFFER))
    assert device.do(offers.Withdrawn(WITHDRAWAL)) == [offers.CleanUp()]
    assert (device.trial.stage, device.trial.cause) == (UpdateStage.REFUSED, UpdateCause.WITHDRAWN)


def test_another_offer_waits_until_the_trial_has_ended() -> None:
    device = Device()
    device.switch()
    other = OFFER.model_copy(update={"rollout": "r-2"})
    sent = len(device.reports)
    assert device.do(offers.Offered(other)) == []
    assert (device.trial.offer, len(device.reports)) == (OFFER, sent)
    device.restart(runs_it=False, back=(UpdateCause.CRASHES, ""))
    device.do(offers.Offered(other))
    assert device.trial.offer == other


def test_a_repeated_offer_is_answered_with_the_stage() -> None:
    device = Device()
    device.switch()
    assert device.do(offers.Offered(OFFER)) == []
    assert device.reports[-1].stage is UpdateStage.SWITCHED


def test_a_switch_that_fails_is_a_refusal() -> None:
    device = Device()
    device.fetch()
    device.do(offers.Worked(INSTALL))
    device.do(offers.Worked(CHECK))
    assert device.do(offers.SwitchFailed((UpdateCause.NOT_INSTALLED, "disk"))) == [offers.CleanUp()]
    assert device.trial.stage is UpdateStage.REFUSED
