"""The trial of an offered model on its device, transition by transition."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from edge_client.agent.rollout.events import (
    Compare,
    Compared,
    Comparison,
    DiscardFiles,
    Event,
    Offered,
    Recheck,
    Rechecked,
    RollBack,
    RolledBack,
    SendRolloutMessage,
    Switch,
    Switched,
    SwitchFailed,
    TrialRestored,
    Withdrawn,
)
from edge_client.agent.rollout.state import Trial, TrialState
from edge_client.agent.rollout.trial import MAX_RESTARTS, step
from edge_client.agent.session.events import BlobChecked, ChunkArrived, Connected, Disconnected, Tick
from edge_client.inference.service.health import Health
from edge_client.transport.chunk_transfer import VerifyBlob, WriteChunk
from schemas.errors import PeerError
from schemas.messages import ModelOffer, ModelReport, ModelWithdrawal
from schemas.messages.rollout_terms import Cause, ModelMeasurement, Stage, TrialTerms
from schemas.tensors.chunks import BlobRef, Chunk, digest_of

DATA = b"model" * 20_000
REF = BlobRef(digest=digest_of(DATA), size=len(DATA), chunk_bytes=65_536)
OFFER = ModelOffer(
    federation="home",
    device="pi",
    rollout="r-1",
    version="v2",
    tier=1,
    blob=REF,
    terms=TrialTerms(watch_s=10.0),
)
OLD, GOOD, BAD = (ModelMeasurement(examples=100, accuracy=x, latency_ms=1.0) for x in (0.9, 0.92, 0.5))
BETTER = Comparison(OLD, GOOD, lost=1, won=3)
WORSE = Comparison(OLD, BAD, lost=41, won=1)
TAKEN_BACK = ModelWithdrawal(federation="home", device="pi", rollout="r-1", version="v2", detail="by hand")


@dataclass
class Device:
    """The machine, its clock, and what it has wanted."""

    now: float = 0.0
    trials: TrialState = field(default_factory=lambda: TrialState("home", "pi", connected=True))
    done: list[Any] = field(default_factory=list)

    def do(self, event: Event) -> list[Any]:
        """Step, and return the commands without the reports."""
        self.trials, commands = step(self.trials, event, self.now)
        self.done += commands
        return [command for command in commands if not isinstance(command, SendRolloutMessage)]

    def fetch(self) -> list[Any]:
        """Take the offer and every chunk of the file."""
        self.do(Offered(OFFER))
        for index in range(REF.chunks):
            size = REF.chunk_size(index)
            data = DATA[index * REF.chunk_bytes :][:size]
            self.do(ChunkArrived(Chunk(REF.digest[:16], index, data)))
        return self.do(BlobChecked(REF.digest, sound=True))

    def switch(self) -> None:
        """Come as far as being watched."""
        self.fetch()
        self.do(Compared("r-1", BETTER))
        self.do(Switched())

    def look(self, comparison: Comparison = BETTER, **more: Any) -> list[Any]:
        """Let time pass up to the next look, and tell what it sees."""
        self.now = self.trials.look_at
        assert self.do(Tick()) == [Recheck(OFFER)]
        return self.do(Rechecked("r-1", comparison, **{"serving": REF.digest, **more}))

    @property
    def stage(self) -> Stage:
        assert self.trials.trial is not None
        return self.trials.trial.stage

    @property
    def reports(self) -> list[ModelReport]:
        """What was said so far."""
        messages = [one.message for one in self.done if isinstance(one, SendRolloutMessage)]
        return [message for message in messages if isinstance(message, ModelReport)]


def test_a_better_model_is_fetched_compared_switched_to_watched_and_kept() -> None:
    device = Device()
    assert device.fetch() == [Compare(OFFER)]
    (switch,) = device.do(Compared("r-1", BETTER))
    assert isinstance(switch, Switch)
    device.do(Switched())
    while device.stage is Stage.SWITCHED:
        device.look()
    assert device.now == 10.0
    assert [report.stage for report in device.reports] == [
        "offered",
        "fetched",
        "compared",
        "switched",
        "kept",
    ]
    assert (device.reports[-1].running, device.reports[-1].candidate) == (OLD, GOOD)


def test_every_chunk_is_asked_for_written_and_the_whole_is_verified() -> None:
    device = Device()
    device.fetch()
    written = [one.index for one in device.done if isinstance(one, WriteChunk)]
    assert written == list(range(REF.chunks))
    assert device.done.count(VerifyBlob(REF)) == 1


def test_a_file_that_is_not_what_its_digest_says_is_fetched_anew() -> None:
    device = Device()
    device.do(Offered(OFFER, present=(1 << REF.chunks) - 1))
    device.do(BlobChecked(REF.digest, sound=False))
    assert device.stage is Stage.OFFERED
    assert device.trials.receiving is not None
    assert device.trials.receiving.have == 0


def test_a_chunk_that_does_not_fit_is_the_peers_fault_and_changes_nothing() -> None:
    device = Device()
    device.do(Offered(OFFER))
    before = device.trials
    with pytest.raises(PeerError):
        device.do(ChunkArrived(Chunk(REF.digest[:16], 0, b"short")))
    assert device.trials == before


def test_a_worse_model_is_refused_before_anything_is_switched() -> None:
    device = Device()
    device.fetch()
    assert device.do(Compared("r-1", WORSE)) == [DiscardFiles()]
    assert (device.stage, device.reports[-1].cause) == (Stage.REFUSED, Cause.ACCURACY)
    assert not any(isinstance(one, Switch) for one in device.done)


def test_a_model_that_takes_its_process_down_is_refused() -> None:
    device = Device()
    device.fetch()
    device.do(Compared("r-1", Comparison(objection=(Cause.CRASHES, "signal 4"))))
    assert device.reports[-1].cause is Cause.CRASHES


def test_what_speaks_against_an_offer_is_said_without_fetching_anything() -> None:
    device = Device()
    assert device.do(Offered(OFFER, objection=(Cause.UNTRUSTED, "another key"))) == [DiscardFiles()]
    assert device.reports[-1].cause is Cause.UNTRUSTED
    assert device.trials.receiving is None


def test_a_model_that_is_served_already_is_kept_and_nothing_withdraws_it() -> None:
    device = Device()
    device.do(Offered(OFFER, serving=REF.digest))
    assert (device.stage, device.reports[-1].candidate) == (Stage.KEPT, None)
    assert device.do(Withdrawn(TAKEN_BACK)) == []
    assert device.stage is Stage.KEPT


def test_the_same_offer_again_is_answered_with_where_it_is() -> None:
    device = Device()
    device.switch()
    assert device.do(Offered(OFFER)) == []
    assert device.reports[-1].stage is Stage.SWITCHED


@pytest.mark.parametrize(
    ("seen", "cause"),
    [
        ({"after": Health(digest=REF.digest, starts=3, ends=1)}, Cause.CRASHES),
        ({"after": Health(digest=REF.digest, starts=1, requests=10, errors=5)}, Cause.ERRORS),
        ({"comparison": WORSE}, Cause.ACCURACY),
        ({"comparison": Comparison(objection=(Cause.CRASHES, "signal 11"))}, Cause.CRASHES),
    ],
)
def test_a_model_that_does_worse_while_it_is_watched_is_given_up_with_nobodys_help(seen, cause) -> None:
    device = Device()
    device.switch()
    assert device.look(**seen) == [RollBack(REF.digest)]
    device.do(RolledBack())
    assert (device.stage, device.reports[-1].cause) == (Stage.ROLLED_BACK, cause)


def test_going_back_is_noted_before_it_is_done() -> None:
    device = Device()
    device.switch()
    device.look(WORSE)
    assert device.trials.trial is not None
    assert device.trials.trial.going_back


def test_where_another_model_has_taken_its_place_there_is_nothing_to_go_back_from() -> None:
    device = Device()
    device.switch()
    assert device.look(serving=digest_of(b"of a later run")) == [DiscardFiles()]
    assert (device.stage, device.reports[-1].cause) == (Stage.ROLLED_BACK, Cause.SUPERSEDED)


@pytest.mark.parametrize("stage", ["fetching", "comparing", "switched", "kept"])
def test_a_version_that_is_withdrawn_is_left_wherever_it_is(stage: str) -> None:
    device = Device()
    if stage == "fetching":
        device.do(Offered(OFFER))
    elif stage == "comparing":
        device.fetch()
    else:
        device.switch()
    while stage == "kept" and device.stage is not Stage.KEPT:
        device.look()
    commands = device.do(Withdrawn(TAKEN_BACK))
    if stage in ("fetching", "comparing"):
        assert (commands, device.stage) == ([DiscardFiles()], Stage.REFUSED)
    else:
        assert commands == [RollBack(REF.digest)]
        device.do(RolledBack())
        assert device.stage is Stage.ROLLED_BACK
    assert device.reports[-1].cause is Cause.WITHDRAWN


def test_a_comparison_that_ends_after_the_withdrawal_switches_nothing() -> None:
    device = Device()
    device.fetch()
    device.do(Withdrawn(TAKEN_BACK))
    assert device.do(Compared("r-1", BETTER)) == []
    assert device.stage is Stage.REFUSED


def test_a_comparison_of_another_rollout_is_none_of_this_one() -> None:
    device = Device()
    device.fetch()
    assert device.do(Compared("r-0", BETTER)) == []
    assert device.stage is Stage.FETCHED


def test_a_switch_that_fails_leaves_the_model_refused() -> None:
    device = Device()
    device.fetch()
    device.do(Compared("r-1", BETTER))
    device.do(SwitchFailed(Cause.NO_SPACE, "disk full"))
    assert (device.stage, device.reports[-1].cause) == (Stage.REFUSED, Cause.NO_SPACE)


# --- after a kill ---
@pytest.mark.parametrize(
    ("trial", "wanted"),
    [
        (Trial(offer=OFFER, stage=Stage.FETCHED), Compare),
        (Trial(offer=OFFER, stage=Stage.COMPARED, candidate=GOOD), Switch),
        (Trial(offer=OFFER, stage=Stage.SWITCHED, cause=Cause.ERRORS, going_back=True), RollBack),
        (Trial(offer=OFFER, stage=Stage.KEPT, cause=Cause.WITHDRAWN, going_back=True), RollBack),
    ],
)
def test_a_process_that_finds_a_trial_half_done_goes_on_with_it(trial: Trial, wanted: type) -> None:
    device = Device()
    (command,) = device.do(TrialRestored(trial))
    assert isinstance(command, wanted)


def test_a_watch_that_was_cut_off_begins_anew() -> None:
    device = Device(now=500.0)
    assert (
        device.do(TrialRestored(Trial(offer=OFFER, stage=Stage.SWITCHED, running=OLD, candidate=GOOD))) == []
    )
    assert device.trials.watch_until == 510.0


def test_what_was_fetched_before_is_not_asked_for_again() -> None:
    device = Device()
    device.do(TrialRestored(Trial(offer=OFFER), present=0b01))
    asked = [one.message for one in device.done if isinstance(one, SendRolloutMessage)]
    assert [(one.first, one.count) for one in asked] == [(1, 1)]


def test_a_model_that_takes_the_board_down_again_and_again_is_given_up() -> None:
    trial = Trial(offer=OFFER, stage=Stage.SWITCHED, restarts=MAX_RESTARTS)
    device = Device()
    assert device.do(TrialRestored(trial)) == [RollBack(REF.digest)]
    comparing = Trial(offer=OFFER, stage=Stage.FETCHED, restarts=MAX_RESTARTS)
    device = Device()
    assert device.do(TrialRestored(comparing)) == [DiscardFiles()]
    assert device.stage is Stage.REFUSED


@pytest.mark.parametrize("stage", [Stage.KEPT, Stage.REFUSED, Stage.ROLLED_BACK])
def test_a_trial_that_is_over_is_only_remembered(stage: Stage) -> None:
    device = Device()
    assert device.do(TrialRestored(Trial(offer=OFFER, stage=stage))) == []
    assert device.done == []
    device.do(Offered(OFFER))
    assert device.reports[-1].stage is stage


def test_without_a_link_nothing_is_asked_for_and_with_one_again_all_that_is_missing() -> None:
    device = Device()
    device.do(Offered(OFFER))
    device.do(Disconnected())
    device.done.clear()
    device.now = 60.0
    device.do(Tick())
    assert device.done == []
    device.do(Connected())
    assert [(one.message.first, one.message.count) for one in device.done] == [(0, 2)]
