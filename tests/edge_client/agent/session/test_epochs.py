"""A device that has heard of a newer server refuses what the old one says."""

import pytest

from edge_client.agent.session.events import Received, SendChunks, SessionRestored
from edge_client.agent.session.machine import Session, step
from edge_client.agent.session.snapshot import SessionSnapshot
from schemas.errors import PeerError, Reason
from schemas.messages import Acknowledgement, BlobRequest, FederationEnd, Refusal
from tests.edge_client.agent.session import by_hand
from tests.edge_client.agent.session.by_hand import announcement, task


def heard(session: Session, message) -> Session:
    return step(session, Received(message), 1.0)[0]


def of_epoch(message, epoch: int | None):
    return message.model_copy(update={"epoch": epoch})


@pytest.mark.parametrize("epoch", [None, 1])
@pytest.mark.parametrize(
    "message",
    [
        task(2, state=by_hand.NEXT),
        announcement(7).message,
        FederationEnd(federation=by_hand.FEDERATION, run=by_hand.RUN, outcome="finished", rounds=1),
        Acknowledgement(**by_hand.SENT, attempt=1, digest=by_hand.RESULT.digest),
    ],
    ids=["task", "announcement", "end", "acknowledgement"],
)
def test_messages_of_an_older_epoch_change_nothing(message, epoch) -> None:
    session = heard(by_hand.REPORTING, of_epoch(announcement(1).message, 2))
    with pytest.raises(PeerError, match=r"by a server that was replaced: .* the newest is 2") as error:
        step(session, Received(of_epoch(message, epoch)), 2.0)
    assert error.value.reason == "superseded"


def test_messages_of_the_same_or_a_newer_epoch_are_heard() -> None:
    session = heard(by_hand.WORKING, of_epoch(announcement(1).message, 2))
    assert heard(session, of_epoch(task(2, state=by_hand.NEXT), 2)).is_at(by_hand.RUN, 2)
    newer = heard(session, of_epoch(task(2, state=by_hand.NEXT), 3))
    assert newer.epochs == {by_hand.RUN: 3}


def test_another_run_has_epochs_of_its_own() -> None:
    session = heard(by_hand.WORKING, of_epoch(announcement(1).message, 5))
    assert heard(session, task(1, run="run-2")).is_at("run-2", 1)


def test_what_names_no_run_is_heard() -> None:
    session = heard(by_hand.REPORTING, of_epoch(announcement(1).message, 5))
    asked = BlobRequest(
        federation=by_hand.FEDERATION, device=by_hand.DEVICE, digest=by_hand.RESULT.digest, first=0, count=1
    )
    assert step(session, Received(asked), 2.0)[1]


def test_epochs_outlive_the_device_s_process() -> None:
    snapshot = heard(by_hand.WORKING, of_epoch(announcement(1).message, 2)).snapshot
    stored = SessionSnapshot.model_validate_json(snapshot.model_dump_json())
    restarted, _ = step(Session(by_hand.FEDERATION, by_hand.DEVICE), SessionRestored(stored, {}), 0.0)
    with pytest.raises(PeerError):
        step(restarted, Received(announcement(3).message), 1.0)


def test_a_run_that_never_changed_its_server_is_stored_as_before() -> None:
    assert '"epochs":{' not in by_hand.WORKING.snapshot.model_dump_json()


def test_a_refusal_of_a_later_server_that_names_no_run_does_not_silence_requests_for_chunks() -> None:
    refusal = Refusal(
        federation=by_hand.FEDERATION, device=by_hand.DEVICE, reason=Reason.UNKNOWN_BLOB, epoch=2
    )
    session = heard(by_hand.REPORTING, refusal)
    request = BlobRequest(
        federation=by_hand.FEDERATION, device=by_hand.DEVICE, digest=by_hand.RESULT.digest, first=0, count=1
    )
    assert step(session, Received(request), 2.0)[1] == [SendChunks(by_hand.RESULT, 0, 1)]
