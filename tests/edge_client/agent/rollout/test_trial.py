"""The trial of an offered model on its device, transition by transition."""

from dataclasses import dataclass
from typing import Any

import pytest

from edge_client.agent.offers import trial as offers
from edge_client.agent.offers.machine import MAX_RESTARTS
from edge_client.agent.rollout.trial import Comparison, Look, ModelTrial
from edge_client.agent.session import events
from edge_client.inference.service.health import Health
from edge_client.transport.chunk_transfer import VerifyBlob, WriteChunk
from schemas.errors import PeerError
from schemas.messages.rollout import Cause, Stage
from schemas.tensors.chunks import Chunk, digest_of
from tests.chunk_bits import chunks_of
from tests.edge_client.agent.offers.by_hand import BAD, BETTER, GOOD, OLD, REF, ModelDevice

OFFER, WITHDRAWAL = ModelDevice.offer, ModelDevice.withdrawal
WORSE = Comparison(OLD, BAD, lost=41, won=1)
COMPARE, RECHECK = offers.Work(OFFER, Stage.COMPARED), offers.Work(OFFER, Stage.KEPT)


@dataclass
class Device(ModelDevice):
    def switch(self) -> None:
        """Continue until the new model is being watched."""
        self.work()
        self.do(offers.Switched())

    def look(self, comparison: Comparison = BETTER, **more: Any) -> list[Any]:
        """Let time pass until the next check and deliver its result."""
        self.now = self.state.look_at
        assert self.do(events.Tick()) == [RECHECK]
        return self.do(offers.Worked(RECHECK, Look(comparison, **{"serving": REF.digest, **more})))

    @property
    def stage(self) -> Stage:
        stage: Stage = self.trial.stage
        return stage


def test_a_better_model_is_downloaded_compared_switched_to_watched_and_kept() -> None:
    device = Device()
    assert device.fetch() == [COMPARE]
    (switch,) = device.do(offers.Worked(COMPARE, BETTER))
    assert isinstance(switch, offers.Switch)
    device.do(offers.Switched())
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


def test_every_chunk_is_written_and_the_whole_file_is_verified() -> None:
    device = Device()
    device.fetch()
    written = [command.index for command in device.done if isinstance(command, WriteChunk)]
    assert written == list(range(REF.chunks))
    assert device.done.count(VerifyBlob(REF)) == 1


def test_a_file_that_does_not_match_its_digest_is_downloaded_again() -> None:
    device = Device()
    device.do(offers.Offered(OFFER, present=chunks_of((1 << REF.chunks) - 1)))
    device.do(events.BlobChecked(REF.digest, sound=False))
    assert device.stage is Stage.OFFERED
    assert device.state.receiving is not None
    assert device.state.receiving.have == chunks_of(0)


def test_a_chunk_of_the_wrong_size_raises_a_peer_error_and_changes_nothing() -> None:
    device = Device()
    device.do(offers.Offered(OFFER))
    before = device.state
    with pytest.raises(PeerError):
        device.do(events.ChunkArrived(Chunk(REF.digest[:16], 0, b"short")))
    assert device.state == before


def test_a_worse_model_is_refused_before_the_switch() -> None:
    device = Device()
    device.fetch()
    assert device.do(offers.Worked(COMPARE, WORSE)) == [offers.CleanUp()]
    assert (device.stage, device.reports[-1].cause) == (Stage.REFUSED, Cause.ACCURACY)
    assert not any(isinstance(command, offers.Switch) for command in device.done)


def test_a_model_that_crashes_the_comparison_is_refused() -> None:
    device = Device()
    device.fetch()
    device.do(offers.Worked(COMPARE, Comparison(objection=(Cause.CRASHES, "signal 4"))))
    assert device.reports[-1].cause is Cause.CRASHES


def test_a_model_that_is_already_served_is_not_compared() -> None:
    device = Device()
    device.do(offers.Offered(OFFER, in_use=REF.digest))
    assert (device.stage, device.reports[-1].candidate) == (Stage.KEPT, None)


@pytest.mark.parametrize(
    ("seen", "cause"),
    [
        ({"after": Health(digest=REF.digest, starts=3, ends=1)}, Cause.CRASHES),
        ({"after": Health(digest=REF.digest, starts=1, requests=10, errors=5)}, Cause.ERRORS),
        ({"comparison": WORSE}, Cause.ACCURACY),
        ({"comparison": Comparison(objection=(Cause.CRASHES, "signal 11"))}, Cause.CRASHES),
    ],
)
def test_a_model_that_gets_worse_while_watched_is_rolled_back_by_the_device(seen, cause) -> None:
    device = Device()
    device.switch()
    assert device.look(**seen) == [offers.RollBack(device.trial)]
    device.do(offers.RolledBack())
    assert (device.stage, device.reports[-1].cause) == (Stage.ROLLED_BACK, cause)


def test_a_rollback_is_recorded_before_it_is_done() -> None:
    device = Device()
    device.switch()
    device.look(WORSE)
    assert device.trial.going_back


def test_a_model_that_was_already_replaced_needs_no_rollback() -> None:
    device = Device()
    device.switch()
    assert device.look(serving=digest_of(b"of a later run")) == [offers.CleanUp()]
    assert (device.stage, device.reports[-1].cause) == (Stage.ROLLED_BACK, Cause.SUPERSEDED)


@pytest.mark.parametrize("stage", ["fetching", "comparing", "switched", "kept"])
def test_a_version_can_be_withdrawn_at_any_stage(stage: str) -> None:
    device = Device()
    if stage == "fetching":
        device.do(offers.Offered(OFFER))
    elif stage == "comparing":
        device.fetch()
    else:
        device.switch()
    while stage == "kept" and device.stage is not Stage.KEPT:
        device.look()
    commands = device.do(offers.Withdrawn(WITHDRAWAL))
    if stage in ("fetching", "comparing"):
        assert (commands, device.stage) == ([offers.CleanUp()], Stage.REFUSED)
    else:
        assert commands == [offers.RollBack(device.trial)]
        device.do(offers.RolledBack())
        assert device.stage is Stage.ROLLED_BACK
    assert device.reports[-1].cause is Cause.WITHDRAWN


def test_a_comparison_that_ends_after_the_withdrawal_switches_nothing() -> None:
    device = Device()
    device.fetch()
    device.do(offers.Withdrawn(WITHDRAWAL))
    assert device.do(offers.Worked(COMPARE, BETTER)) == []
    assert device.stage is Stage.REFUSED


# --- after a kill ---
@pytest.mark.parametrize(
    ("trial", "expected"),
    [
        (ModelTrial(offer=OFFER, stage=Stage.FETCHED), offers.Work),
        (ModelTrial(offer=OFFER, stage=Stage.COMPARED, candidate=GOOD), offers.Switch),
        (ModelTrial(offer=OFFER, stage=Stage.SWITCHED, cause=Cause.ERRORS, going_back=True), offers.RollBack),
        (ModelTrial(offer=OFFER, stage=Stage.KEPT, cause=Cause.WITHDRAWN, going_back=True), offers.RollBack),
    ],
)
def test_a_restarted_process_continues_an_unfinished_trial(trial: ModelTrial, expected: type) -> None:
    device = Device()
    (command,) = device.do(offers.Restored(trial))
    assert isinstance(command, expected)
    assert command in (COMPARE, offers.Switch(device.trial), offers.RollBack(device.trial))


def test_an_interrupted_watch_starts_over() -> None:
    device = Device(now=500.0)
    assert (
        device.do(offers.Restored(ModelTrial(offer=OFFER, stage=Stage.SWITCHED, running=OLD, candidate=GOOD)))
        == []
    )
    assert device.state.watch_until == 510.0


def test_a_model_that_repeatedly_crashes_the_board_is_rolled_back() -> None:
    trial = ModelTrial(offer=OFFER, stage=Stage.SWITCHED, restarts=MAX_RESTARTS)
    device = Device()
    assert device.do(offers.Restored(trial)) == [offers.RollBack(device.trial)]
    comparing = ModelTrial(offer=OFFER, stage=Stage.FETCHED, restarts=MAX_RESTARTS)
    device = Device()
    assert device.do(offers.Restored(comparing)) == [offers.CleanUp()]
    assert device.stage is Stage.REFUSED


@pytest.mark.parametrize("stage", [Stage.KEPT, Stage.REFUSED, Stage.ROLLED_BACK])
def test_a_finished_trial_only_answers_with_its_stage(stage: Stage) -> None:
    device = Device()
    assert device.do(offers.Restored(ModelTrial(offer=OFFER, stage=stage))) == [offers.CleanUp()]
    assert device.done == [offers.CleanUp()]
    device.do(offers.Offered(OFFER))
    assert device.reports[-1].stage is stage


def test_missing_chunks_are_requested_only_while_connected() -> None:
    device = Device()
    device.do(offers.Offered(OFFER))
    device.do(events.Disconnected())
    device.done.clear()
    device.now = 60.0
    device.do(events.Tick())
    assert device.done == []
    device.do(events.Connected())
    assert [(command.message.first, command.message.count) for command in device.done] == [(0, 2)]


def test_a_comparison_that_is_reported_twice_does_not_end_the_look_that_follows() -> None:
    device = Device()
    device.switch()
    device.now = device.state.look_at
    assert device.do(events.Tick()) == [RECHECK]
    device.do(offers.Worked(COMPARE, BETTER))
    assert device.state.busy
    assert device.do(events.Tick()) == []
