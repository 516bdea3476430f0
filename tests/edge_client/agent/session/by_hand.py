"""Example sessions, one per phase, and helpers that build messages and step a session."""

from edge_client.agent.session.events import (
    BlobChecked,
    ChunkArrived,
    Connected,
    Received,
    SendMessage,
    WorkDone,
    WorkFailed,
)
from edge_client.agent.session.machine import Session, step
from schemas import messages
from schemas.errors import Reason
from schemas.strategy import TrainingPlan
from schemas.tensors.chunks import BlobRef, Chunk, digest_of
from schemas.values import DeliveryMetrics, ModelSpec, TrainingMetrics

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
) -> messages.Task:
    """The task of round `number`; its attempt defaults to the round number."""
    fields = {
        "federation": FEDERATION,
        "run": run,
        "round": number,
        "attempt": attempt or number,
        "tier": 1,
        "ratio": 0.5,
        "model": ModelSpec(name="mlp", input_shape=(1, 8, 8), num_classes=10),
        "blobs": {"state": state},
        "deadline_s": 600.0,
        **more,
    }
    if more.get("action") == "deliver":
        return messages.DeliverTask(**fields)
    return messages.TrainTask(**{"training": TrainingPlan(), **fields})


def update(
    number: int = 1, *, attempt: int | None = None, blob: BlobRef = RESULT, run: str = RUN
) -> messages.Update:
    metrics = TrainingMetrics(examples=10, epochs=1, steps=1)
    sent = {**SENT, "run": run, "round": number, "attempt": attempt or number}
    return messages.Update(**sent, blob=blob, metrics=metrics)


def delivery(number: int = 1, attempt: int = 2) -> messages.Delivery:
    """A delivery result; its attempt follows that of the training in the same round."""
    sizes = {"parameters": 1, "macs": 1, "onnx_bytes": 1, "examples": 1, "max_difference": 0, "latency_ms": 1}
    metrics = DeliveryMetrics(onnx_sha256="0" * 64, **sizes)
    return messages.Delivery(**SENT, round=number, attempt=attempt, metrics=metrics)


def deliver(attempt: int = 2, **more) -> messages.Task:
    return task(attempt=attempt, action="deliver", **more)


def ack(attempt: int = 1, digest: str | None = RESULT.digest, run: str = RUN) -> Received:
    return Received(messages.Acknowledgement(**{**SENT, "run": run}, attempt=attempt, digest=digest))


def refusal(
    attempt: int = 1, reason: Reason = Reason.WRONG_SHAPE, digest: str | None = RESULT.digest
) -> Received:
    return Received(messages.Refusal(**SENT, attempt=attempt, digest=digest, reason=reason))


def announcement(number: int, run: str = RUN, **more) -> Received:
    fields = {"run": run, "round": number, "rounds": 9, "phase": "training", "selected": 1}
    return Received(messages.RoundAnnouncement(federation=FEDERATION, **fields, **more))


def end(run: str = RUN) -> Received:
    return Received(messages.FederationEnd(federation=FEDERATION, run=run, outcome="finished", rounds=9))


def accepted(number: int = 1, run: str = RUN, attempt: int | None = None) -> SendMessage:
    sent = {**SENT, "run": run, "round": number, "attempt": attempt or number}
    return SendMessage(messages.TaskReply(**sent, accepted=True))


def request(ref: BlobRef, first: int, count: int) -> SendMessage:
    return SendMessage(
        messages.BlobRequest(
            federation=FEDERATION, device=DEVICE, digest=ref.digest, first=first, count=count
        )
    )


def damaged(ref: BlobRef) -> SendMessage:
    """The refusal of a blob whose bytes do not match its digest."""
    about = {"federation": FEDERATION, "device": DEVICE, "run": RUN, "digest": ref.digest}
    return SendMessage(messages.Refusal(**about, reason=Reason.DIGEST_MISMATCH))


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
