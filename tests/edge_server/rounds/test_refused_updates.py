"""Updates that are stale, wrong or sent twice."""

import pytest

from edge_server.rounds.events import CloseRound, Note, RecordStrike, RoundClosed, Send, UpdateChecked
from edge_server.rounds.machine import Phase
from edge_server.rounds.participant import Status
from schemas.errors import Reason
from schemas.tensors.chunks import BlobRef
from tests.edge_server.rounds import by_hand


def test_an_update_sent_again_after_it_counted_is_acknowledged_and_counted_once():
    run = by_hand.training("a", "b")
    run.upload("a")
    assert run.hear(by_hand.update("a")) == [by_hand.ack("a", by_hand.update("a").blob.digest)]
    (close,) = by_hand.of(CloseRound, run.upload("b"))
    assert close.updates == {"a": by_hand.update("a"), "b": by_hand.update("b")}
    assert run.hear(by_hand.update("a")) == [by_hand.ack("a", by_hand.update("a").blob.digest)]


def test_another_update_after_one_counted_is_refused_as_already_counted():
    run = by_hand.training("a", "b")
    run.upload("a")
    assert by_hand.refusals(run.hear(by_hand.update("a", 1))) == [("a", Reason.ALREADY_COUNTED)]


def test_an_update_counted_in_the_last_round_is_still_acknowledged_in_this_one():
    run = by_hand.training("a")
    run.upload("a")
    run.tell(RoundClosed(1))
    run.plan("a")
    assert run.hear(by_hand.update("a")) == [by_hand.ack("a", by_hand.update("a").blob.digest)]
    assert run.status("a") is Status.OFFERED


def test_an_update_counted_in_the_last_round_is_still_acknowledged_after_this_one_was_abandoned():
    run = by_hand.training("a")
    run.upload("a")
    run.tell(RoundClosed(1))
    run.plan("a")
    run.decline("a")
    assert run.phase is Phase.WAITING
    assert run.hear(by_hand.update("a")) == [by_hand.ack("a", by_hand.update("a").blob.digest)]


def test_an_update_of_a_device_that_was_not_selected_is_refused():
    run = by_hand.training("a")
    assert by_hand.refusals(run.hear(by_hand.update("z"))) == [("z", Reason.NOT_SELECTED)]


@pytest.mark.parametrize("odd", [{"number": 2}, {"attempt": 2}, {"run": "run-0"}])
def test_an_update_of_another_task_is_refused_as_stale(odd):
    run = by_hand.training("a")
    assert by_hand.refusals(run.hear(by_hand.update("a", **odd))) == [("a", Reason.STALE_ROUND)]
    assert run.status("a") is Status.OFFERED


def test_an_update_after_the_deadline_is_refused_as_stale():
    run = by_hand.training("a", "b")
    run.upload("b")
    run.wait(100)
    assert by_hand.refusals(run.hear(by_hand.update("a"))) == [("a", Reason.STALE_ROUND)]


def test_an_update_that_claims_more_than_fits_its_sub_model_is_refused_at_once():
    run = by_hand.training("a", "b")
    large = by_hand.update(
        "a", blob=BlobRef(digest="0" * 64, size=by_hand.MAX_BYTES + 1, chunk_bytes=by_hand.CHUNK)
    )
    commands = run.hear(large)
    assert by_hand.refusals(commands) == [("a", Reason.OVERSIZED)]
    assert by_hand.request("a") not in commands
    assert run.status("a") is Status.REFUSED
    assert by_hand.refusals(run.hear(large)) == [("a", Reason.OVERSIZED)]


def test_a_refusal_names_its_task_and_its_update():
    run = by_hand.training("a", "b")
    wrong, stale = run.upload("a", reason=Reason.NOT_FINITE), run.hear(by_hand.update("b", attempt=7))
    sent = [command.message for command in (*wrong, *stale) if isinstance(command, Send)]
    assert [(refusal.run, refusal.attempt, refusal.digest, refusal.reason) for refusal in sent] == [
        (by_hand.RUN, 1, by_hand.update("a").blob.digest, Reason.NOT_FINITE),
        (by_hand.RUN, 7, by_hand.update("b").blob.digest, Reason.STALE_ROUND),
    ]


def test_a_refused_update_is_answered_with_the_reason_and_the_round_continues_without_it():
    run = by_hand.training("a", "b")
    commands = run.upload("a", reason=Reason.NOT_FINITE, detail="'w' holds NaN")
    assert by_hand.refusals(commands) == [("a", Reason.NOT_FINITE)]
    assert Note("update refused", "a", Reason.NOT_FINITE, "'w' holds NaN") in commands
    (close,) = by_hand.of(CloseRound, run.upload("b"))
    assert close.updates == {"b": by_hand.update("b")}
    assert (close.selected, close.dropped) == (("a", "b"), ())
    assert close.rejected == {"a": (Reason.NOT_FINITE, "'w' holds NaN")}


def test_a_repeated_verdict_counts_once():
    run = by_hand.training("a", "b")
    run.upload("a")
    before = run.federation
    assert run.tell(UpdateChecked("a", by_hand.update("a").blob.digest, Reason.NOT_FINITE)) == []
    assert run.federation == before


# --- problems found by comparison with the other updates ---
def test_an_update_refused_by_comparison_with_the_others_counts_against_its_device():
    run = by_hand.training("a", "b")
    run.upload("a")
    run.upload("b")
    commands = run.tell(RoundClosed(1, refused={"b": (Reason.OUT_OF_BOUNDS, "too large")}))
    assert Note("update refused", "b", Reason.OUT_OF_BOUNDS, "too large") in commands
    assert RecordStrike("b", 1, Reason.OUT_OF_BOUNDS) in commands
    assert run.federation.reputations["b"].strikes == {1: 1.0}


def test_a_device_that_exaggerates_is_noted_without_losing_reputation():
    run = by_hand.training("a", "b")
    run.upload("a")
    run.upload("b")
    commands = run.tell(RoundClosed(1, exaggerated={"b": "examples 1e+12 counts as 300"}))
    notes = [command for command in commands if isinstance(command, Note)]
    assert notes == [
        Note("counts with less than it says", "b", Reason.EXAGGERATED, "examples 1e+12 counts as 300")
    ]
    assert RecordStrike("b", 1, Reason.EXAGGERATED) in commands
    assert run.federation.reputations == {}


def test_reported_training_time_is_limited_to_the_time_since_the_offer():
    run = by_hand.training("a")
    run.now += 7.0
    claimed = by_hand.update("a")
    exaggerated = claimed.model_copy(update={"metrics": claimed.metrics.model_copy(update={"seconds": 1e9})})
    run.hear(exaggerated)
    assert run.federation.participants["a"].update.metrics.seconds == 7.0
    # The same update, sent again later, changes nothing.
    run.now += 5.0
    before = run.federation.participants["a"]
    assert run.hear(exaggerated) == []
    assert run.federation.participants["a"] is before
