"""An update of the client on its device, transition by transition."""

from dataclasses import dataclass
from typing import Any

import pytest

from edge_client.agent.offers import trial as offers
from edge_client.agent.offers.machine import MAX_RESTARTS
from edge_client.agent.session import events
from schemas.messages.client_update import UpdateCause, UpdateStage
from tests.edge_client.agent.offers.by_hand import REF, ReleaseDevice

OFFER, WITHDRAWAL, TERMS = ReleaseDevice.offer, ReleaseDevice.withdrawal, ReleaseDevice.offer.terms
INSTALL, CHECK = (worked.work for worked in ReleaseDevice.works)
IN_B = ReleaseDevice.switched


@dataclass
class Device(ReleaseDevice):
    """`restart` is another process."""

    def switch(self) -> list[Any]:
        """Continue until the process must end for the new version."""
        self.work()
        return self.do(IN_B)

    def restart(
        self, *, runs_it: bool, back: offers.Objection | None = None, connected: bool = True
    ) -> list[Any]:
        """The next process, with the saved update."""
        trial = self.trial
        self.state = self.fresh(version="0.2.0" if runs_it else "0.1.0", connected=connected)
        return self.do(offers.Restored(trial, runs_it=runs_it, back=back))

    def wait(self, seconds: float) -> list[Any]:
        """Let time pass, then tick."""
        self.now += seconds
        return self.do(events.Tick())


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


def test_a_release_that_runs_already_is_reported_so() -> None:
    device = Device()
    device.do(offers.Offered(OFFER, in_use=REF.digest))
    assert (device.reports[-1].stage, device.reports[-1].had_it) == ("kept", True)


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
    device.work()
    assert device.restart(runs_it=False) == [offers.Switch(device.trial)]
    assert device.do(IN_B) == [offers.Restart()]


def test_a_power_cut_after_the_switch_and_before_it_was_saved_goes_on_in_the_new_version() -> None:
    device = Device()
    device.work()
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
