"""The session of one device, transition by transition."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edge_client.memory import Memory
from edge_client.session import RESEND_S, Phase, Session, step
from edge_client.session_events import (
    BlobChecked,
    ChunkArrived,
    ChunkLost,
    Connected,
    Disconnected,
    Received,
    Remembered,
    RunEnded,
    Send,
    SendChunks,
    Settled,
    StartWork,
    StopWork,
    Tick,
    WorkDone,
    WorkFailed,
)
from edge_client.transfer import MAX_PATIENCE_S, PATIENCE_S, VerifyBlob, WriteChunk
from schemas.blobs import BlobRef, Chunk, digest_of
from schemas.errors import PeerError
from schemas.messages import (
    Acknowledgement,
    BlobRequest,
    Delivery,
    FederationEnd,
    Refusal,
    RoundAnnouncement,
    Task,
    TaskReply,
    Update,
)
from schemas.strategy import TrainingPlan
from schemas.values import DeliveryMetrics, ModelSpec, Reason, TrainingMetrics

FEDERATION, DEVICE, RUN = "home", "pi", "run-1"
CHUNK = 1024
SENT = {"federation": FEDERATION, "device": DEVICE, "run": RUN}


def ref_of(data: bytes) -> BlobRef:
    return BlobRef(digest=digest_of(data), size=len(data), chunk_bytes=CHUNK)


STATE_DATA, NEXT_DATA, RESULT_DATA = b"s" * 2500, b"n" * 2500, b"r" * 2500
STATE, NEXT, RESULT = ref_of(STATE_DATA), ref_of(NEXT_DATA), ref_of(RESULT_DATA)
SMALL = ref_of(b"small")


def task(
    number: int = 1, *, attempt: int | None = None, run: str = RUN, state: BlobRef = STATE, **more
) -> Task:
    """The task of round `number`, at its first attempt unless another one is named."""
    fields = {
        "federation": FEDERATION,
        "run": run,
        "round": number,
        "attempt": attempt or number,
        "tier": 1,
        "ratio": 0.5,
        "model": ModelSpec(name="mlp", input_shape=(1, 8, 8), num_classes=10),
        "training": TrainingPlan(),
        "blobs": {"state": state},
        "deadline_s": 600.0,
    }
    return Task(**{**fields, **more})


def update(number: int = 1, *, attempt: int | None = None, blob: BlobRef = RESULT, run: str = RUN) -> Update:
    metrics = TrainingMetrics(examples=10, epochs=1, steps=1)
    sent = {**SENT, "run": run, "round": number, "attempt": attempt or number}
    return Update(**sent, blob=blob, metrics=metrics)


def delivery(number: int = 1, attempt: int = 2) -> Delivery:
    """A delivery comes after the training of its round."""
    sizes = {"parameters": 1, "macs": 1, "onnx_bytes": 1, "examples": 1, "max_difference": 0, "latency_ms": 1}
    metrics = DeliveryMetrics(onnx_sha256="0" * 64, **sizes)
    return Delivery(**SENT, round=number, attempt=attempt, metrics=metrics)


def deliver(attempt: int = 2, **more) -> Task:
    return task(attempt=attempt, action="deliver", training=None, **more)


def ack(attempt: int = 1, digest: str | None = RESULT.digest, run: str = RUN) -> Received:
    return Received(Acknowledgement(**{**SENT, "run": run}, attempt=attempt, digest=digest))


def refusal(
    attempt: int = 1, reason: Reason = Reason.WRONG_SHAPE, digest: str | None = RESULT.digest
) -> Received:
    return Received(Refusal(**SENT, attempt=attempt, digest=digest, reason=reason))


def announcement(number: int, run: str = RUN, **more) -> Received:
    fields = {"run": run, "round": number, "rounds": 9, "phase": "training", "selected": 1}
    return Received(RoundAnnouncement(federation=FEDERATION, **fields, **more))


def end(run: str = RUN) -> Received:
    return Received(FederationEnd(federation=FEDERATION, run=run, outcome="finished", rounds=9))


def accepted(number: int = 1, run: str = RUN, attempt: int | None = None) -> Send:
    sent = {**SENT, "run": run, "round": number, "attempt": attempt or number}
    return Send(TaskReply(**sent, accepted=True))


def request(ref: BlobRef, first: int, count: int) -> Send:
    return Send(
        BlobRequest(federation=FEDERATION, device=DEVICE, digest=ref.digest, first=first, count=count)
    )


def chunks(data: bytes) -> list[ChunkArrived]:
    prefix = digest_of(data)[:16]
    starts = range(0, len(data), CHUNK)
    return [ChunkArrived(Chunk(prefix, n, data[at : at + CHUNK])) for n, at in enumerate(starts)]


def after(session: Session, *events, now: float = 0.0) -> Session:
    for event in events:
        session, _ = step(session, event, now)
    return session


IDLE = after(Session(FEDERATION, DEVICE), Connected())
FETCHING = after(IDLE, Received(task()))
WORKING = after(FETCHING, *chunks(STATE_DATA), BlobChecked(STATE.digest, True))
REPORTING = after(WORKING, WorkDone(update()))
SETTLED = after(REPORTING, ack())
FAILED = after(WORKING, WorkFailed(task(), Reason.TASK_FAILED, "no luck"))
PHASES = {"idle": IDLE, "fetching": FETCHING, "working": WORKING, "reporting": REPORTING, "settled": SETTLED}


def test_the_examples_are_where_they_should_be():
    phases = [Phase.IDLE, Phase.FETCHING, Phase.WORKING, Phase.REPORTING, Phase.IDLE]
    assert [session.phase for session in PHASES.values()] == phases


# --- offer, fetch, work ---
def test_an_offer_is_accepted_and_its_missing_blobs_are_asked_for():
    session, commands = step(IDLE, Received(task()), 0.0)
    assert session.phase is Phase.FETCHING
    assert commands == [accepted(), request(STATE, 0, 3)]


def test_of_a_blob_that_is_half_there_only_the_rest_is_asked_for():
    session, commands = step(IDLE, Received(task(), {STATE.digest: 0b010}), 0.0)
    assert commands == [accepted(), request(STATE, 0, 1), request(STATE, 2, 1)]
    session = after(session, chunks(STATE_DATA)[0])
    assert step(session, chunks(STATE_DATA)[2], 0.0)[1][-1] == VerifyBlob(STATE)


def test_a_blob_that_is_all_there_but_unchecked_is_checked_before_work_begins():
    session, commands = step(IDLE, Received(task(), {STATE.digest: 0b111}), 0.0)
    assert commands == [accepted(), VerifyBlob(STATE)]
    assert step(session, BlobChecked(STATE.digest, True), 0.0)[1] == [StartWork(task())]
    assert step(session, BlobChecked(STATE.digest, False), 0.0)[1] == [request(STATE, 0, 3)]


def test_work_begins_at_once_where_every_blob_is_held():
    holder = Session(FEDERATION, DEVICE, held=frozenset({STATE.digest}), connected=True)
    session, commands = step(holder, Received(task()), 0.0)
    assert session.phase is Phase.WORKING
    assert commands == [accepted(), StartWork(task())]


def test_an_inline_blob_is_waited_for_before_it_is_asked_for():
    session, commands = step(IDLE, Received(task(state=SMALL)), 0.0)
    assert commands == [accepted()]
    assert step(session, Tick(), PATIENCE_S - 0.1)[1] == []
    assert step(session, Tick(), PATIENCE_S)[1] == [request(SMALL, 0, 1)]


def test_a_blob_that_a_task_names_twice_is_fetched_once():
    twice = task(blobs={"state": STATE, "channel-map": STATE})
    session, commands = step(IDLE, Received(twice), 0.0)
    assert commands == [accepted(), request(STATE, 0, 3)]
    assert after(session, *chunks(STATE_DATA), BlobChecked(STATE.digest, True)).phase is Phase.WORKING


def test_chunks_are_written_and_a_complete_blob_is_checked():
    session, written = FETCHING, []
    for event in chunks(STATE_DATA):
        session, commands = step(session, event, 0.0)
        written += commands
    first, second, third = (STATE_DATA[at : at + CHUNK] for at in (0, 1024, 2048))
    assert written == [
        WriteChunk(STATE, 0, first),
        WriteChunk(STATE, 1, second),
        WriteChunk(STATE, 2, third),
        VerifyBlob(STATE),
    ]
    assert session.phase is Phase.FETCHING


def test_work_begins_when_the_last_blob_is_sound():
    both = after(IDLE, Received(task(blobs={"state": STATE, "channel-map": NEXT})))
    both = after(both, *chunks(STATE_DATA), *chunks(NEXT_DATA))
    both, commands = step(both, BlobChecked(NEXT.digest, True), 0.0)
    assert (both.phase, commands) == (Phase.FETCHING, [])
    both, commands = step(both, BlobChecked(STATE.digest, True), 0.0)
    assert (both.phase, [type(one) for one in commands]) == (Phase.WORKING, [StartWork])
    assert both.held == {STATE.digest, NEXT.digest}


def test_a_blob_that_is_not_sound_is_fetched_again():
    complete = after(FETCHING, *chunks(STATE_DATA))
    session, commands = step(complete, BlobChecked(STATE.digest, False), 5.0)
    assert commands == [request(STATE, 0, 3)]
    assert session.held == frozenset()
    again = after(session, *chunks(STATE_DATA), BlobChecked(STATE.digest, True))
    assert again.phase is Phase.WORKING


def test_missing_chunks_are_asked_for_again():
    session = after(FETCHING, chunks(STATE_DATA)[1], now=1.0)
    assert step(session, Tick(), 1.0 + PATIENCE_S)[1] == [request(STATE, 0, 1), request(STATE, 2, 1)]


def test_a_chunk_of_no_blob_in_question_is_ignored():
    for session in PHASES.values():
        assert step(session, chunks(NEXT_DATA)[0], 0.0) == (session, [])


def test_a_chunk_that_does_not_fit_its_blob_is_refused():
    with pytest.raises(PeerError):
        step(FETCHING, ChunkArrived(Chunk(STATE.digest[:16], 0, b"short")), 0.0)
    assert after(FETCHING, *chunks(STATE_DATA), BlobChecked(STATE.digest, True)) == WORKING


def test_the_check_of_a_blob_of_an_earlier_task_is_only_remembered():
    session = after(FETCHING, *chunks(STATE_DATA), Received(task(2, state=NEXT)))
    session, commands = step(session, BlobChecked(STATE.digest, True), 0.0)
    assert (session.phase, commands) == (Phase.FETCHING, [])
    assert STATE.digest in session.held


# --- the same task again ---
@pytest.mark.parametrize("phase", ["fetching", "working"])
def test_the_same_offer_again_is_accepted_again_and_changes_nothing(phase):
    again = task(deadline_s=300.0)  # only the time that is left differs
    assert step(PHASES[phase], Received(again), 1.0) == (PHASES[phase], [accepted()])


def test_the_same_offer_again_is_answered_with_the_result_where_there_is_one():
    for session in (REPORTING, SETTLED):
        repeated, commands = step(session, Received(task()), 7.0)
        assert commands == [Send(update())]
        assert repeated.phase is session.phase


# --- other tasks ---
@pytest.mark.parametrize("phase", PHASES)
def test_a_newer_task_replaces_whatever_was_there(phase):
    session, commands = step(PHASES[phase], Received(task(2, state=NEXT)), 0.0)
    assert (session.phase, session.task, session.result) == (Phase.FETCHING, task(2, state=NEXT), None)
    assert commands[:1] == [accepted(2)]
    assert request(NEXT, 0, 3) in commands
    assert (StopWork() in commands) == (phase == "working")


@pytest.mark.parametrize("phase", ["fetching", "working", "reporting", "settled"])
def test_an_older_task_is_ignored(phase):
    newer = after(PHASES[phase], Received(task(3)))
    assert step(newer, Received(task(2)), 0.0) == (newer, [])


@pytest.mark.parametrize("ending", [refusal(2), announcement(3)], ids=["refused", "the round is over"])
def test_an_older_task_is_ignored_also_after_the_end_of_the_newer_one(ending):
    # A late copy of the first offer, for which the server would refuse any result.
    session = after(WORKING, Received(task(2)), WorkDone(update(2)), ending)
    assert session.task is None
    assert step(session, Received(task(1)), 0.0) == (session, [])


def test_delivering_comes_after_training_in_the_same_round():
    later = deliver(state=NEXT)
    session, commands = step(WORKING, Received(later), 0.0)
    assert (session.task, StopWork() in commands) == (later, True)
    assert step(session, Received(task()), 0.0) == (session, [])


def test_a_round_planned_anew_replaces_the_work_of_its_first_attempt():
    again = task(attempt=2, training=TrainingPlan(seed=1))
    session, commands = step(WORKING, Received(again), 0.0)
    assert session.task == again
    assert commands == [accepted(attempt=2), StopWork(), StartWork(again)]


def test_a_round_planned_anew_with_the_very_same_work_replaces_it_too():
    # The result of the first attempt would be refused as stale.
    session, commands = step(REPORTING, Received(task(attempt=2)), 0.0)
    assert (session.phase, session.result) == (Phase.WORKING, None)
    assert commands == [accepted(attempt=2), StartWork(task(attempt=2))]


def test_the_attempt_alone_says_whether_it_is_the_same_work():
    # The server makes each task once; what it repeats differs in the time that is left, and in nothing else.
    other = task(training=TrainingPlan(seed=1), state=NEXT)
    assert step(WORKING, Received(other), 0.0) == (WORKING, [accepted()])


@pytest.mark.parametrize("phase", PHASES)
def test_a_task_of_another_run_replaces_that_of_this_one(phase):
    other = task(1, run="run-2", state=NEXT)
    session, commands = step(PHASES[phase], Received(other), 0.0)
    assert session.task == other
    assert accepted(1, "run-2") in commands
    assert "run-2" in session.runs


# --- report until acknowledged ---
def test_a_result_is_announced_and_its_blob_waits_to_be_asked_for():
    session, commands = step(WORKING, WorkDone(update()), 0.0)
    assert session.phase is Phase.REPORTING
    assert commands == [Send(update())]
    assert RESULT.digest in session.held


def test_a_small_result_rides_along():
    commands = step(WORKING, WorkDone(update(blob=SMALL)), 0.0)[1]
    assert commands == [Send(update(blob=SMALL)), SendChunks(SMALL, 0, 1)]


def test_a_result_is_repeated_until_it_is_answered():
    assert step(REPORTING, Tick(), RESEND_S - 0.1)[1] == []
    repeated, commands = step(REPORTING, Tick(), RESEND_S)
    assert commands == [Send(update())]
    # Twice as long as the first time: 5 s, then 10 s more.
    assert step(repeated, Tick(), 3 * RESEND_S - 0.1)[1] == []
    assert step(repeated, Tick(), 3 * RESEND_S)[1] == [Send(update())]
    assert step(after(repeated, ack()), Tick(), 9 * RESEND_S)[1] == []


def test_an_acknowledgement_settles_the_result_and_keeps_it():
    session, commands = step(REPORTING, ack(), 0.0)
    assert (session.phase, session.result) == (Phase.IDLE, update())
    assert commands == [Settled(update())]


@pytest.mark.parametrize(
    "answer",
    [
        ack(2),
        ack(run="run-0"),
        ack(digest=NEXT.digest),
        ack(digest=None),
        refusal(2),
        refusal(digest=NEXT.digest),
        refusal(digest=None),
    ],
)
def test_an_answer_to_something_else_settles_nothing(answer):
    assert step(REPORTING, answer, 0.0) == (REPORTING, [])


@pytest.mark.parametrize("phase", ["idle", "fetching", "working"])
@pytest.mark.parametrize("answer", [ack(), refusal()])
def test_an_answer_before_there_is_a_result_changes_nothing(phase, answer):
    assert step(PHASES[phase], answer, 0.0) == (PHASES[phase], [])


def test_a_second_acknowledgement_changes_nothing():
    assert step(SETTLED, ack(), 0.0) == (SETTLED, [])


def test_a_refusal_settles_the_result_and_forgets_it():
    session, commands = step(REPORTING, refusal(), 0.0)
    assert (session.phase, session.task, session.result) == (Phase.IDLE, None, None)
    assert commands == [Settled(update(), refusal().message)]


def test_a_delivery_is_settled_by_an_acknowledgement_without_a_digest():
    session = after(SETTLED, Received(deliver()), WorkDone(delivery()))
    assert session.phase is Phase.REPORTING
    session, commands = step(session, ack(2, digest=None), 0.0)
    assert (session.phase, commands) == (Phase.IDLE, [Settled(delivery())])


# --- work that fails ---
def test_failed_work_is_reported_as_a_declined_task():
    session, commands = step(WORKING, WorkFailed(task(), Reason.TASK_FAILED, "x" * 900), 0.0)
    declined = TaskReply(
        **SENT, round=1, attempt=1, accepted=False, reason=Reason.TASK_FAILED, detail="x" * 500
    )
    assert (session.phase, commands) == (Phase.REPORTING, [Send(declined)])


def test_failed_work_is_reported_until_the_server_has_heard_of_it():
    assert step(FAILED, Tick(), RESEND_S)[1] == [Send(FAILED.result)]
    session, commands = step(FAILED, ack(digest=None), 0.0)
    assert (session.phase, session.task, commands) == (Phase.IDLE, None, [Settled(FAILED.result)])
    assert step(session, Tick(), 9 * RESEND_S)[1] == []


def test_failed_work_is_tried_again_when_it_is_offered_again_after_that():
    session, commands = step(after(FAILED, ack(digest=None)), Received(task()), 0.0)
    assert commands == [accepted(), StartWork(task())]
    assert session.phase is Phase.WORKING


# --- killed and back ---
def back(session: Session, *, held: frozenset[str] = frozenset(), present=None):
    """The session of a new process that finds what `session` left on disk, and its first commands."""
    memory = Memory.model_validate_json(session.memory.model_dump_json())
    fresh = after(Session(FEDERATION, DEVICE, held=held), Connected())
    return step(fresh, Remembered(memory, present or {}), 100.0)


HOLDS = frozenset({STATE.digest, RESULT.digest})


def test_a_result_is_told_again_and_its_missing_chunks_are_given():
    session, commands = back(REPORTING, held=HOLDS)
    assert (session.phase, commands) == (Phase.REPORTING, [Send(update())])
    # The server has offered the task again on the new birth, and asks for what it lacks.
    session, commands = step(session, Received(task(deadline_s=5.0)), 100.0)
    assert commands == [Send(update())]
    asked = BlobRequest(federation=FEDERATION, device=DEVICE, digest=RESULT.digest, first=1, count=2)
    session, commands = step(session, Received(asked), 100.0)
    assert commands == [SendChunks(RESULT, 1, 2)]
    session, commands = step(session, ack(), 100.0)
    assert commands == [Settled(update())]
    assert session.memory.task is None


def test_a_small_result_is_told_again_with_its_bytes():
    small = after(WORKING, WorkDone(update(blob=SMALL)))
    _, commands = back(small, held=frozenset({SMALL.digest}))
    assert commands == [Send(update(blob=SMALL)), SendChunks(SMALL, 0, 1)]


def test_a_failure_is_told_again():
    session, commands = back(FAILED)
    assert session.phase is Phase.REPORTING
    assert commands == [Send(FAILED.result)]


def test_a_result_whose_blob_is_gone_is_made_again():
    session, commands = back(REPORTING, held=frozenset({STATE.digest}))
    assert (session.phase, session.result, commands) == (Phase.WORKING, None, [StartWork(task())])


def test_work_begins_again_by_itself():
    session, commands = back(WORKING, held=frozenset({STATE.digest}))
    assert (session.phase, commands) == (Phase.WORKING, [StartWork(task())])
    # The offer on the new birth changes nothing, the announcement of a later round ends it.
    assert step(session, Received(task()), 100.0)[1] == [accepted()]
    assert step(session, announcement(2), 100.0)[1] == [StopWork()]


def test_fetching_goes_on_with_the_chunks_that_are_missing():
    session, commands = back(FETCHING, present={STATE.digest: 0b011})
    assert (session.phase, commands) == (Phase.FETCHING, [request(STATE, 2, 1)])


def test_a_blob_that_was_complete_and_not_yet_checked_is_checked():
    session, commands = back(FETCHING, present={STATE.digest: 0b111})
    assert commands == [VerifyBlob(STATE)]
    assert step(session, BlobChecked(STATE.digest, True), 100.0)[1] == [StartWork(task())]


@pytest.mark.parametrize("phase", ["idle", "settled"])
def test_of_a_task_that_is_settled_nothing_is_remembered(phase):
    session, commands = back(PHASES[phase], held=HOLDS)
    assert (session.phase, session.task, commands) == (Phase.IDLE, None, [])


def test_the_end_of_a_run_is_understood_that_an_earlier_process_took_part_in():
    session, _ = back(SETTLED)
    assert [type(one) for one in step(session, end(), 0.0)[1]] == [RunEnded]
    assert step(Session(FEDERATION, DEVICE), end(), 0.0)[1] == []


def test_a_task_from_before_the_one_at_hand_stays_unwanted():
    session, _ = back(after(IDLE, Received(task(2, attempt=5))))
    assert step(session, Received(task(1, attempt=4)), 0.0) == (session, [])


def test_a_memory_does_not_displace_a_task_at_hand():
    late = Remembered(REPORTING.memory, {})
    other = after(IDLE, Received(task(2, state=NEXT)))
    session, commands = step(other, late, 0.0)
    assert (session.task, session.phase, commands) == (other.task, Phase.FETCHING, [])


def test_runs_that_never_end_are_not_all_remembered():
    many = after(IDLE, *(announcement(1, run=f"run-{number:03}") for number in range(40)))
    assert many.memory.runs == tuple(f"run-{number:03}" for number in range(24, 40))


# --- results that are overtaken ---
def test_an_update_that_was_overtaken_still_counts_when_the_server_says_so():
    session = after(REPORTING, announcement(2), Received(task(2, state=NEXT)))
    session, commands = step(session, ack(), 0.0)
    assert commands == [Settled(update())]
    assert session.task == task(2, state=NEXT)
    assert step(session, ack(), 0.0) == (session, [])


def test_an_update_that_was_overtaken_and_refused_does_not_count():
    session = after(REPORTING, Received(task(2, state=NEXT)))
    (settled,) = step(session, refusal(), 0.0)[1]
    assert settled.result == update()
    assert settled.refusal is not None


def test_a_task_of_another_run_ends_the_wait_for_an_answer():
    session = after(REPORTING, Received(task(run="run-2", state=NEXT)))
    assert step(session, ack(), 0.0) == (session, [])


# --- a disk that takes no more ---
def test_a_chunk_that_could_not_be_kept_is_asked_for_again_and_not_taken_for_there():
    session = after(FETCHING, *chunks(STATE_DATA))
    assert session.has_all_of(STATE)
    session = after(session, ChunkLost(STATE.digest, 2))
    assert not session.has_all_of(STATE)
    assert step(session, Tick(), MAX_PATIENCE_S - 0.1)[1] == []
    session, commands = step(session, Tick(), MAX_PATIENCE_S)
    assert commands == [request(STATE, 2, 1)]
    assert after(session, chunks(STATE_DATA)[2]).has_all_of(STATE)


def test_a_lost_chunk_of_no_blob_in_question_is_ignored():
    assert step(WORKING, ChunkLost(STATE.digest, 0), 0.0) == (WORKING, [])
    assert not WORKING.has_all_of(STATE)


# --- work whose end comes too late ---
@pytest.mark.parametrize("phase", ["idle", "fetching", "reporting", "settled"])
def test_the_end_of_work_that_nobody_waits_for_changes_only_what_is_held(phase):
    stale = update(blob=NEXT)
    session, commands = step(PHASES[phase], WorkDone(stale), 0.0)
    assert commands == []
    assert (session.phase, session.result) == (PHASES[phase].phase, PHASES[phase].result)
    assert NEXT.digest in session.held


@pytest.mark.parametrize("number", [1, 3])
def test_the_end_of_another_rounds_work_is_no_result(number):
    session = after(WORKING, Received(task(2)))
    assert session.phase is Phase.WORKING
    session, commands = step(session, WorkDone(update(number)), 0.0)
    assert (session.phase, session.result, commands) == (Phase.WORKING, None, [])


def test_the_end_of_another_runs_work_is_no_result():
    session, commands = step(WORKING, WorkDone(update(run="run-0")), 0.0)
    assert (session.phase, commands) == (Phase.WORKING, [])


@pytest.mark.parametrize("other", [task(9), task(attempt=2), task(run="run-0")])
def test_the_failure_of_other_work_is_none(other):
    session, commands = step(WORKING, WorkFailed(other, Reason.TASK_FAILED, ""), 0.0)
    assert (session.phase, commands) == (Phase.WORKING, [])


def test_the_end_of_an_earlier_attempt_is_no_result_of_the_same_round_planned_anew():
    session = after(WORKING, Received(task(attempt=2)))
    for event in (WorkDone(update()), WorkFailed(task(), Reason.TASK_FAILED, "")):
        late, commands = step(session, event, 0.0)
        assert (late.phase, late.result, commands) == (Phase.WORKING, None, [])
    _, commands = step(session, WorkDone(update(attempt=2)), 0.0)
    assert commands == [Send(update(attempt=2))]


def test_the_end_of_training_is_no_result_of_the_delivery_in_the_same_round():
    # The training's end lay in the inbox when the delivery task came, whose blobs were all there.
    session = after(WORKING, Received(deliver()))
    assert session.phase is Phase.WORKING
    session, commands = step(session, WorkDone(update()), 0.0)
    assert (session.phase, session.result, commands) == (Phase.WORKING, None, [])


def test_an_acknowledgement_of_failed_training_does_not_settle_the_delivery_of_the_same_round():
    # The failure was said twice and acknowledged twice; the second acknowledgement came late.
    failed = after(FAILED, ack(digest=None))
    delivering = after(failed, Received(deliver()), WorkDone(delivery()))
    assert delivering.phase is Phase.REPORTING
    # Else the delivery would never be said again.
    assert step(delivering, ack(digest=None), 0.0) == (delivering, [])


# --- blob requests ---
def test_the_blob_of_the_result_is_given_when_asked_for():
    asked = BlobRequest(federation=FEDERATION, device=DEVICE, digest=RESULT.digest, first=1, count=2)
    for session in (REPORTING, SETTLED):
        assert step(session, Received(asked), 0.0) == (session, [SendChunks(RESULT, 1, 2)])


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("digest", [STATE.digest, NEXT.digest])
def test_no_other_blob_is_ever_given_away(phase, digest):
    asked = BlobRequest(federation=FEDERATION, device=DEVICE, digest=digest, first=0, count=1)
    answer = Refusal(federation=FEDERATION, device=DEVICE, reason=Reason.UNKNOWN_BLOB, digest=digest)
    assert step(PHASES[phase], Received(asked), 0.0) == (PHASES[phase], [Send(answer)])


# --- the round moves on, the run ends ---
@pytest.mark.parametrize("phase", ["fetching", "working", "reporting", "settled"])
def test_the_announcement_of_a_later_round_ends_the_task(phase):
    session, commands = step(PHASES[phase], announcement(2), 0.0)
    assert (session.phase, session.task, session.result, session.receiving) == (Phase.IDLE, None, None, {})
    assert commands == ([StopWork()] if phase == "working" else [])
    assert step(session, Tick(), 100.0)[1] == []


@pytest.mark.parametrize("phase", ["fetching", "working", "reporting", "settled"])
def test_a_task_of_an_earlier_round_goes_on_while_it_is_wanted(phase):
    # The task is of round 1.
    session, commands = step(PHASES[phase], announcement(4, oldest=1), 0.0)
    assert (session, commands) == (PHASES[phase], [])
    session, _ = step(session, announcement(5, oldest=2), 0.0)
    assert session.task is None


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("heard", [announcement(1), announcement(0), announcement(5, run="run-2")])
def test_the_announcement_of_this_round_or_of_another_run_only_tells_of_the_run(phase, heard):
    session = PHASES[phase]
    known = replace(session, runs=session.runs | {heard.message.run})
    assert step(session, heard, 0.0) == (known, [])


@pytest.mark.parametrize("phase", ["fetching", "working", "reporting", "settled"])
def test_the_end_of_the_run_ends_the_task_and_is_told(phase):
    session, commands = step(PHASES[phase], end(), 0.0)
    assert (session.phase, session.task, session.runs) == (Phase.IDLE, None, frozenset())
    assert session.ended == {RUN}
    assert commands == [*([StopWork()] if phase == "working" else []), RunEnded(end().message)]
    assert step(session, end(), 0.0) == (session, [])


def test_the_end_of_a_run_that_it_never_saw_is_not_its_end():
    # What is retained of a run that was over before this device came.
    assert step(IDLE, end(), 0.0) == (IDLE, [])
    assert step(WORKING, end("run-0"), 0.0) == (WORKING, [])


def test_the_end_of_a_run_that_never_selected_it_is_told():
    waiting = after(IDLE, announcement(1))
    session, commands = step(waiting, end(), 0.0)
    assert (session.phase, session.runs, commands) == (Phase.IDLE, frozenset(), [RunEnded(end().message)])


def test_the_end_of_a_run_is_told_once_also_after_a_late_announcement_of_it():
    session = after(WORKING, end(), announcement(1))
    assert step(session, end(), 0.0) == (session, [])


@pytest.mark.parametrize("late", [task(), task(2, state=NEXT), deliver(attempt=9)])
@pytest.mark.parametrize("phase", ["fetching", "working", "reporting", "settled"])
def test_a_task_of_a_run_that_is_over_is_ignored(phase, late):
    session = after(PHASES[phase], end())
    assert step(session, Received(late), 0.0) == (session, [])


def test_the_next_run_is_taken_part_in_after_the_end_of_one():
    session, commands = step(after(WORKING, end()), Received(task(run="run-2")), 0.0)
    assert session.phase is Phase.WORKING
    assert commands == [accepted(run="run-2"), StartWork(task(run="run-2"))]


def test_the_end_of_an_earlier_run_does_not_stop_the_work_of_this_one():
    session = after(WORKING, Received(task(run="run-2")))
    ended, commands = step(session, end(), 0.0)
    assert (ended.phase, ended.task, commands) == (Phase.WORKING, session.task, [RunEnded(end().message)])


# --- the link ---
@pytest.mark.parametrize("phase", PHASES)
def test_a_cut_link_costs_nothing_but_silence(phase):
    session, commands = step(PHASES[phase], Disconnected(), 0.0)
    assert commands == []
    assert step(session, Tick(), 1000.0) == (session, [])
    assert (session.phase, session.task, session.result) == (
        PHASES[phase].phase,
        PHASES[phase].task,
        PHASES[phase].result,
    )


def test_work_goes_on_while_the_link_is_cut_and_its_result_is_said_on_return():
    session = after(WORKING, Disconnected(), WorkDone(update()))
    assert session.phase is Phase.REPORTING
    session, commands = step(session, Connected(), 50.0)
    assert commands == [Send(update())]
    assert step(session, Tick(), 50.0 + RESEND_S)[1] == [Send(update())]


def test_on_return_only_missing_chunks_are_asked_for():
    session = after(FETCHING, chunks(STATE_DATA)[1], Disconnected())
    assert step(session, Connected(), 50.0)[1] == [request(STATE, 0, 1), request(STATE, 2, 1)]


@pytest.mark.parametrize("phase", ["idle", "working", "settled"])
def test_on_return_there_is_nothing_to_say_where_nothing_is_pending(phase):
    assert step(after(PHASES[phase], Disconnected()), Connected(), 50.0)[1] == []


@pytest.mark.parametrize("message", [update(), delivery(), accepted().message])
@pytest.mark.parametrize("phase", PHASES)
def test_messages_that_are_not_for_a_device_change_nothing(phase, message):
    assert step(PHASES[phase], Received(message), 0.0) == (PHASES[phase], [])
