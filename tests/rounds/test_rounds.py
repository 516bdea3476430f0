"""The round machine, rule by rule."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from edge_client.transfer import PATIENCE_S
from edge_server import rounds
from edge_server.participant import CHECK_UP_S, OFFER_PATIENCE_S, Status
from edge_server.round_events import (
    Announce,
    Assignment,
    CheckUpdate,
    ChunkArrived,
    CloseRound,
    Deliver,
    End,
    FromFleet,
    Note,
    PlanRound,
    RoundClosed,
    RoundPlanned,
    Send,
    SendChunks,
    SpoolChunk,
    Started,
    Stopped,
    Stored,
    Tick,
    UpdateChecked,
)
from edge_server.rounds import RETRY_S, Federation, Phase, RoundRules
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
from tests.rounds.test_fleet import birth, death

NAME, RUN, CHUNK, MAX_BYTES = "home", "run-1", 1024, 5000


def ref_of(data: bytes) -> BlobRef:
    return BlobRef(digest=digest_of(data), size=len(data), chunk_bytes=CHUNK)


def answer_of(device: str, version: int = 0) -> bytes:
    """An update's bytes: three chunks, so it does not ride along."""
    return f"{device}{version}".encode() * 1200


STATE, SMALL_MAP = ref_of(b"s" * 2500), ref_of(b"map")


@dataclass
class Run:
    """A federation and its clock; `tell` and `wait` return the commands that come of it."""

    federation: Federation
    now: float = 0.0
    log: list = field(default_factory=list)

    def tell(self, event) -> list:
        self.federation, commands = rounds.step(self.federation, event, self.now)
        self.log += commands
        return commands

    def hear(self, message) -> list:
        return self.tell(FromFleet(message))

    def wait(self, seconds: float) -> list:
        self.now += seconds
        return self.tell(Tick())

    def status(self, device: str) -> Status:
        return self.federation.participants[device].status

    @property
    def phase(self) -> Phase:
        return self.federation.phase

    @property
    def task(self) -> dict[str, Task]:
        return {name: one.assignment.task for name, one in self.federation.participants.items()}

    def plan(self, *devices: str, deliver: bool = False, needed: int | None = None, **more) -> list:
        number, attempt = self.federation.round, self.federation.attempt
        tasks = {name: assignment(number, attempt, deliver=deliver, **more) for name in devices}
        return self.tell(RoundPlanned(attempt, tasks, needed))

    def decline(self, device: str) -> list:
        """The device declines the task at hand."""
        return self.hear(reply(device, self.federation.round, self.federation.attempt, accepted=False))

    def claim(self, device: str, version: int = 0) -> Update:
        """The device's update for the task that it has."""
        return update(device, version, self.task[device].round, self.task[device].attempt)

    def upload(self, device: str, version: int = 0, reason: Reason | None = None) -> list:
        """The device sends its whole update, and the verdict on it is `reason`."""
        claim = self.claim(device, version)
        commands = self.hear(claim)
        for event in chunks(device, version):
            commands += self.tell(event)
        assert CheckUpdate(device, claim) in commands
        return self.tell(UpdateChecked(device, claim.blob.digest, reason))


def assignment(number: int = 1, attempt: int = 1, *, deliver: bool = False, **more) -> Assignment:
    task = Task(
        federation=NAME,
        run=RUN,
        round=number,
        attempt=attempt,
        action="deliver" if deliver else "train",
        tier=1,
        ratio=0.0,
        model=ModelSpec(name="mlp", input_shape=(1, 8, 8), num_classes=10),
        training=None if deliver else TrainingPlan(),
        blobs={"state": STATE, "channel-map": SMALL_MAP},
    )
    return Assignment(task.model_copy(update=more), MAX_BYTES)


def update(device: str, version: int = 0, number: int = 1, attempt: int | None = None, **more) -> Update:
    """An update of round `number`, at its first attempt unless another one is named."""
    fields = {
        "federation": NAME,
        "device": device,
        "run": RUN,
        "round": number,
        "attempt": attempt or number,
        "blob": ref_of(answer_of(device, version)),
        "metrics": TrainingMetrics(examples=1, epochs=1, steps=1),
    }
    return Update(**{**fields, **more})


def chunks(device: str, version: int = 0) -> list[ChunkArrived]:
    data = answer_of(device, version)
    starts = range(0, len(data), CHUNK)
    prefix = digest_of(data)[:16]
    return [ChunkArrived(device, Chunk(prefix, n, data[at : at + CHUNK])) for n, at in enumerate(starts)]


def reply(
    device: str, number: int = 1, attempt: int | None = None, *, accepted: bool = True, run: str = RUN, **more
) -> TaskReply:
    common = {"federation": NAME, "device": device, "run": run, "round": number}
    return TaskReply(**common, attempt=attempt or number, accepted=accepted, **more)


def delivery(device: str, number: int = 1, attempt: int = 2) -> Delivery:
    """A delivery comes after the training of its round."""
    sizes = {"parameters": 1, "macs": 1, "onnx_bytes": 1, "examples": 1, "max_difference": 0, "latency_ms": 1}
    metrics = DeliveryMetrics(onnx_sha256="0" * 64, **sizes)
    return Delivery(federation=NAME, device=device, run=RUN, round=number, attempt=attempt, metrics=metrics)


def ack(device: str, digest: str | None, attempt: int = 1) -> Send:
    answer = Acknowledgement(federation=NAME, device=device, run=RUN, attempt=attempt, digest=digest)
    return Send(device, answer)


def request(device: str, version: int = 0, first: int = 0, count: int = 3) -> Send:
    digest = digest_of(answer_of(device, version))
    return Send(device, BlobRequest(federation=NAME, device=device, digest=digest, first=first, count=count))


def refusals(commands: list) -> list[tuple[str, Reason]]:
    return [
        (one.device, one.message.reason)
        for one in commands
        if isinstance(one, Send) and isinstance(one.message, Refusal)
    ]


def offers(commands: list) -> list[str]:
    """The devices that are offered a task."""
    return [one.device for one in commands if isinstance(one, Send) and isinstance(one.message, Task)]


def announced(commands: list) -> list[str]:
    found = [one.message for one in commands if isinstance(one, Announce)]
    return [getattr(message, "phase", message.kind) for message in found]


def of(kind: type, commands: list) -> list:
    return [one for one in commands if isinstance(one, kind)]


def started(*devices: str, **rules) -> Run:
    run = Run(Federation(NAME, RUN, RoundRules(**{"rounds": 2, "deadline_s": 100.0, **rules})))
    run.tell(Started())
    for device in devices:
        run.hear(birth(device))
    return run


def training(*devices: str, **rules) -> Run:
    """A run whose first round is planned with all devices."""
    run = started(*devices, **{"start_clients": len(devices), **rules})
    run.plan(*devices)
    assert run.phase is Phase.TRAINING
    return run


def delivering(*devices: str) -> Run:
    """A run of one round, at its delivery."""
    run = training(*devices, rounds=1)
    for device in devices:
        run.upload(device)
    run.tell(RoundClosed(1))
    run.plan(*devices, deliver=True)
    assert run.phase is Phase.DELIVERING
    return run


# --- waiting and planning ---
def test_a_run_waits_for_its_first_devices_and_later_rounds_for_fewer():
    run = started("a", start_clients=3, min_clients=2)
    assert (run.phase, announced(run.log)) == (Phase.WAITING, ["waiting"])
    assert run.hear(birth("b")) == []
    (plan,) = run.hear(birth("c"))
    assert (plan.round, [device.name for device in plan.devices]) == (1, ["a", "b", "c"])
    run.plan("a", "b", "c")
    for device in "abc":
        run.upload(device)
    run.hear(death("c"))
    (plan,) = of(PlanRound, run.tell(RoundClosed(1)))
    assert [device.name for device in plan.devices] == ["a", "b"]


def test_only_devices_that_are_there_count():
    run = started("a", start_clients=2)
    run.hear(death("a"))
    run.hear(birth("b"))
    assert run.phase is Phase.WAITING
    assert of(PlanRound, run.hear(birth("a", session=2)))


def test_a_round_is_planned_once():
    run = started("a")
    assert run.phase is Phase.PLANNING
    assert run.hear(birth("b")) == []
    assert run.wait(50) == []


def test_a_plan_without_devices_is_made_again_after_a_pause():
    run = started("a")
    run.plan()
    assert run.phase is Phase.WAITING
    assert run.wait(RETRY_S - 0.1) == []
    assert len(of(PlanRound, run.wait(0.1))) == 1


def test_a_plan_without_devices_is_an_abandonment():
    run = started("a", attempts=1)
    commands = run.plan()
    assert [note.what for note in of(Note, commands)] == ["round abandoned"]
    (plan,) = of(PlanRound, run.wait(RETRY_S))
    assert (plan.attempt, plan.retry) == (2, 1)
    commands = run.plan()
    assert [end.outcome for end in of(End, commands)] == ["failed"]
    assert run.phase is Phase.ENDED


@pytest.mark.parametrize("attempt", [1, 3])
def test_a_plan_of_another_attempt_is_ignored(attempt):
    run = started("a")
    run.plan()
    run.wait(RETRY_S)
    assert run.tell(RoundPlanned(attempt, {"a": assignment(1, attempt)})) == []
    assert run.phase is Phase.PLANNING
    assert offers(run.plan("a")) == ["a"]


def test_every_planning_of_the_run_has_a_number_of_its_own():
    run = started("a", rounds=2)
    run.plan("a")
    run.decline("a")  # attempt 1 of round 1 is abandoned
    run.wait(RETRY_S)
    for number in (1, 2):
        run.plan("a")
        run.upload("a")
        run.tell(RoundClosed(number))
    numbers = [(plan.round, plan.attempt, plan.retry, plan.deliver) for plan in of(PlanRound, run.log)]
    assert numbers == [(1, 1, 0, False), (1, 2, 1, False), (2, 3, 0, False), (2, 4, 0, True)]


# --- offers ---
def test_every_selected_device_is_offered_its_task_with_what_rides_along():
    run = started("a", "b", start_clients=2)
    commands = run.plan("a", "b")
    assert announced(commands) == ["training"]
    assert offers(commands) == ["a", "b"]
    assert of(Send, commands)[0].message.deadline_s == 100.0
    assert SendChunks("a", SMALL_MAP, 0, 1) in commands
    assert of(SendChunks, commands) == [SendChunks(d, SMALL_MAP, 0, 1) for d in "ab"]


def test_an_offer_is_repeated_until_it_is_answered_with_the_time_that_is_left():
    run = training("a")
    assert run.wait(OFFER_PATIENCE_S - 0.1) == []
    (again,) = run.wait(0.1)
    assert again.message.deadline_s == 100.0 - OFFER_PATIENCE_S
    assert offers(run.wait(OFFER_PATIENCE_S)) == ["a"]


def test_an_offer_that_was_answered_is_not_repeated_before_the_check_up():
    run = training("a", "b")
    run.hear(reply("a"))
    assert offers(run.wait(OFFER_PATIENCE_S)) == ["b"]
    run.hear(reply("b"))
    assert offers(run.wait(CHECK_UP_S - OFFER_PATIENCE_S - 0.1)) == []
    assert offers(run.wait(0.1)) == ["a"]


def test_a_device_that_has_accepted_is_checked_up_on_from_time_to_time():
    # It may have lost its task (a restart that nobody saw) and would stay silent until the deadline.
    run = training("a")
    run.hear(reply("a"))
    assert offers(run.wait(CHECK_UP_S)) == ["a"]
    for _ in range(2):
        run.hear(reply("a"))
        assert run.status("a") is Status.ACCEPTED
        assert run.wait(CHECK_UP_S - 0.1) == []
        assert offers(run.wait(0.1)) == ["a"]


@pytest.mark.parametrize("accepted", [False, True])
def test_what_rides_along_is_sent_with_the_first_offer_only(accepted):
    # A device that lacks it asks.
    run = training("a")
    if accepted:
        run.hear(reply("a"))
    later = run.wait(CHECK_UP_S)
    assert (offers(later), of(SendChunks, later)) == (["a"], [])


@pytest.mark.parametrize("away", [True, False])
def test_whoever_uploads_or_is_away_is_not_checked_up_on(away):
    run = training("a", rejoin_s=90)
    run.hear(reply("a"))
    run.hear(death("a") if away else update("a"))
    assert offers(run.wait(CHECK_UP_S + OFFER_PATIENCE_S)) == []


def test_nothing_is_offered_to_a_device_that_is_away():
    run = training("a", "b", rejoin_s=50)
    run.hear(death("a"))
    assert offers(run.wait(OFFER_PATIENCE_S)) == ["b"]


def test_a_declined_task_is_acknowledged_and_noted():
    run = training("a", "b")
    commands = run.hear(reply("a", accepted=False, reason=Reason.TASK_FAILED, detail="none"))
    assert commands == [ack("a", None), Note("declined the task", "a", Reason.TASK_FAILED, "none")]
    assert run.status("a") is Status.DECLINED
    assert run.hear(reply("a", accepted=False, reason=Reason.TASK_FAILED)) == [ack("a", None)]


@pytest.mark.parametrize("odd", [{"number": 9}, {"attempt": 2}, {"run": "run-0"}])
def test_a_reply_to_another_task_is_acknowledged_but_declines_nothing(odd):
    run = training("a")
    commands = run.hear(reply("a", accepted=False, **odd))
    assert [type(one.message) for one in commands] == [Acknowledgement]
    assert commands[0].message.attempt == odd.get("attempt", odd.get("number", 1))
    assert run.status("a") is Status.OFFERED


def test_a_reply_of_a_device_that_was_not_selected_changes_nothing():
    run = training("a")
    before = run.federation
    assert run.hear(reply("z")) == []
    assert run.federation == before


# --- uploads ---
def test_an_update_is_fetched_checked_and_acknowledged_and_the_round_closes():
    run = training("a")
    run.hear(reply("a"))
    assert run.hear(update("a")) == [request("a")]
    first, second, third = chunks("a")
    assert [type(one) for one in run.tell(second)] == [SpoolChunk]
    assert [type(one) for one in run.tell(first)] == [SpoolChunk]
    assert [type(one) for one in run.tell(third)] == [SpoolChunk, CheckUpdate]
    commands = run.tell(UpdateChecked("a", update("a").blob.digest))
    assert announced(commands) == ["aggregating"]
    assert [one for one in commands if not isinstance(one, Announce)] == [
        ack("a", update("a").blob.digest),
        CloseRound(
            1, updates={"a": update("a")}, selected=("a",), dropped=(), rejected={}, staleness={"a": 0}
        ),
    ]
    assert run.phase is Phase.CLOSING


def test_an_update_counts_although_the_offer_was_never_answered():
    run = training("a")
    assert of(CloseRound, run.upload("a"))


def test_missing_chunks_of_an_update_are_asked_for_again():
    run = training("a")
    run.hear(update("a"))
    run.tell(chunks("a")[1])
    assert run.wait(PATIENCE_S) == [request("a", first=0, count=1), request("a", first=2, count=1)]


def test_an_inline_update_is_taken_as_it_comes():
    run = training("a")
    small = update("a", blob=ref_of(b"tiny"))
    assert run.hear(small) == []
    commands = run.tell(ChunkArrived("a", Chunk(small.blob.digest[:16], 0, b"tiny")))
    assert [type(one) for one in commands] == [SpoolChunk, CheckUpdate]


def test_an_inline_update_whose_chunk_came_first_is_asked_for():
    run = training("a")
    small = update("a", blob=ref_of(b"tiny"))
    assert run.tell(ChunkArrived("a", Chunk(small.blob.digest[:16], 0, b"tiny"))) == []
    run.hear(small)
    wanted = BlobRequest(federation=NAME, device="a", digest=small.blob.digest, first=0, count=1)
    assert run.wait(PATIENCE_S) == [Send("a", wanted)]


def test_a_chunk_that_does_not_fit_is_refused_and_costs_nothing():
    run = training("a")
    run.hear(update("a"))
    before = run.federation
    with pytest.raises(PeerError):
        run.tell(ChunkArrived("a", Chunk(update("a").blob.digest[:16], 0, b"short")))
    assert run.federation == before


def test_a_late_chunk_of_an_earlier_update_is_ignored():
    run = training("a")
    run.hear(update("a"))
    run.hear(update("a", 1))
    assert run.tell(chunks("a")[0]) == []


@pytest.mark.parametrize("device", ["a", "z"])
def test_a_chunk_that_nobody_asked_for_is_ignored(device):
    run = training("a")
    before = run.federation
    assert run.tell(ChunkArrived(device, chunks("a")[0].chunk)) == []
    assert run.federation == before


def test_an_update_announced_again_is_not_fetched_twice():
    run = training("a")
    run.hear(update("a"))
    run.tell(chunks("a")[0])
    assert run.hear(update("a")) == []
    run.tell(chunks("a")[1])
    assert [type(one) for one in run.tell(chunks("a")[2])] == [SpoolChunk, CheckUpdate]
    assert run.hear(update("a")) == []


def test_another_update_replaces_one_that_does_not_count_yet():
    run = training("a")
    run.hear(update("a"))
    for event in chunks("a"):
        run.tell(event)
    assert run.hear(update("a", 1)) == [request("a", 1)]
    assert run.tell(UpdateChecked("a", update("a").blob.digest)) == []
    for event in chunks("a", 1):
        run.tell(event)
    (close,) = of(CloseRound, run.tell(UpdateChecked("a", update("a", 1).blob.digest)))
    assert close.updates == {"a": update("a", 1)}


def test_no_more_uploads_than_allowed_at_once():
    run = training("a", "b", "c", uploads_at_once=2)
    assert [run.hear(update(device)) for device in "abc"] == [[request("a")], [request("b")], []]
    assert run.status("c") is Status.WAITING
    for event in chunks("a"):
        run.tell(event)
    # One that is being checked still counts as sending.
    assert run.status("c") is Status.WAITING
    assert request("c") in run.tell(UpdateChecked("a", update("a").blob.digest))


def test_the_place_of_a_refused_upload_is_given_on():
    run = training("a", "b", uploads_at_once=1)
    run.hear(update("a"))
    run.hear(update("b"))
    for event in chunks("a"):
        run.tell(event)
    commands = run.tell(UpdateChecked("a", update("a").blob.digest, Reason.NOT_FINITE))
    assert request("b") in commands


def quiet(run: Run, seconds: float) -> list:
    """Time passes in steps of a second, as it does."""
    return [command for _ in range(int(seconds)) for command in run.wait(1)]


# After the last chunk a silent uploader is asked again after 2, 4, 8 and 16 s, then after 30 s, its longest
# patience: at 2, 6, 14 and 30 s. At 60 s that too has run out.
SILENT_S = 60


def test_the_place_of_a_device_that_falls_silent_is_given_on_and_what_it_sent_is_kept():
    run = training("a", "b", uploads_at_once=1, deadline_s=1000.0)
    run.hear(update("a"))
    run.tell(chunks("a")[0])
    run.hear(update("b"))
    before = quiet(run, SILENT_S - 1)
    assert before == [request("a", first=1, count=2)] * 4
    assert request("b") in run.wait(1)
    assert (run.status("a"), run.status("b")) == (Status.WAITING, Status.UPLOADING)
    for event in chunks("b"):
        run.tell(event)
    # Its turn again: only what is missing is asked for.
    assert request("a", first=1, count=2) in run.tell(UpdateChecked("b", update("b").blob.digest))
    for event in chunks("a")[1:]:
        commands = run.tell(event)
    assert CheckUpdate("a", update("a")) in commands


def test_a_device_that_fell_silent_comes_after_the_others():
    run = training("a", "b", "c", uploads_at_once=1, deadline_s=1000.0)
    for device in "abc":
        run.hear(update(device))
    assert request("b") in quiet(run, SILENT_S)
    for event in chunks("b"):
        run.tell(event)
    commands = run.tell(UpdateChecked("b", update("b").blob.digest))
    assert request("c") in commands
    assert [run.status(device) for device in "abc"] == [Status.WAITING, Status.COUNTED, Status.UPLOADING]


def test_a_device_that_falls_silent_is_asked_again_where_nobody_waits():
    run = training("a", uploads_at_once=1, deadline_s=1000.0)
    run.hear(update("a"))
    run.tell(chunks("a")[0])
    quiet(run, SILENT_S - 1)
    assert run.wait(1) == [request("a", first=1, count=2)]
    assert run.status("a") is Status.UPLOADING
    # With its first patience.
    assert run.wait(PATIENCE_S) == [request("a", first=1, count=2)]


def test_a_device_that_sends_a_chunk_now_and_then_keeps_its_place():
    run = training("a", "b", uploads_at_once=1, deadline_s=1000.0)
    run.hear(update("a"))
    run.hear(update("b"))
    for event in chunks("a")[:2]:
        quiet(run, SILENT_S - 1)
        run.tell(event)
    quiet(run, SILENT_S - 1)
    assert run.status("a") is Status.UPLOADING
    assert run.status("b") is Status.WAITING


def test_a_device_that_fell_silent_and_returns_is_asked_when_it_is_its_turn():
    run = training("a", "b", uploads_at_once=1, deadline_s=1000.0, rejoin_s=500)
    run.hear(update("a"))
    run.tell(chunks("a")[0])
    run.hear(update("b"))
    quiet(run, SILENT_S)
    assert run.status("a") is Status.WAITING
    assert request("a", first=1, count=2) not in run.hear(birth("a", session=2))
    for event in chunks("b"):
        run.tell(event)
    assert request("a", first=1, count=2) in run.tell(UpdateChecked("b", update("b").blob.digest))


def test_the_place_of_a_lost_device_is_given_on():
    run = training("a", "b", uploads_at_once=1, rejoin_s=10)
    run.hear(update("a"))
    run.hear(update("b"))
    run.hear(death("a"))
    assert request("b") not in run.wait(9)
    assert request("b") in run.wait(1)


def test_a_device_that_lost_its_update_is_offered_the_task_again():
    run = training("a")
    run.hear(update("a"))
    lost = Refusal(federation=NAME, device="a", reason=Reason.UNKNOWN_BLOB, digest=update("a").blob.digest)
    assert offers(run.hear(lost)) == ["a"]
    assert run.status("a") is Status.OFFERED
    assert run.hear(update("a", 1)) == [request("a", 1)]


@pytest.mark.parametrize(
    "odd",
    [
        {"reason": Reason.MALFORMED, "detail": "what is that"},
        {"reason": Reason.UNKNOWN_BLOB, "digest": digest_of(answer_of("a", 1))},
        {"reason": Reason.UNKNOWN_BLOB, "detail": digest_of(answer_of("a"))},
    ],
)
def test_a_refusal_of_something_else_changes_nothing(odd):
    run = training("a")
    run.hear(update("a"))
    before = run.federation
    assert run.hear(Refusal(federation=NAME, device="a", **odd)) == []
    assert run.federation == before


@pytest.mark.parametrize("at_once", [0, 1], ids=["it waits for its turn", "it is being fetched"])
def test_an_update_that_the_server_has_already_is_checked_at_once(at_once):
    run = training("a", uploads_at_once=at_once)
    run.hear(update("a"))
    assert run.tell(Stored("a")) == [CheckUpdate("a", update("a"))]
    assert run.status("a") is Status.CHECKING
    # It is checked once, and nothing more is asked for.
    assert run.tell(Stored("a")) == []
    assert run.wait(PATIENCE_S) == []
    assert of(CloseRound, run.tell(UpdateChecked("a", update("a").blob.digest)))


@pytest.mark.parametrize("device", ["a", "z"])
def test_a_stored_update_that_was_not_claimed_changes_nothing(device):
    run = training("a")
    before = run.federation
    assert run.tell(Stored(device)) == []
    assert run.federation == before


# --- updates that do not count ---
def test_an_update_told_again_after_it_counted_is_acknowledged_and_counted_once():
    run = training("a", "b")
    run.upload("a")
    assert run.hear(update("a")) == [ack("a", update("a").blob.digest)]
    (close,) = of(CloseRound, run.upload("b"))
    assert close.updates == {"a": update("a"), "b": update("b")}
    assert run.hear(update("a")) == [ack("a", update("a").blob.digest)]


def test_another_update_after_one_counted_is_refused_as_already_counted():
    run = training("a", "b")
    run.upload("a")
    assert refusals(run.hear(update("a", 1))) == [("a", Reason.ALREADY_COUNTED)]


def test_an_update_counted_in_the_last_round_is_still_acknowledged_in_this_one():
    run = training("a")
    run.upload("a")
    run.tell(RoundClosed(1))
    run.plan("a")
    assert run.hear(update("a")) == [ack("a", update("a").blob.digest)]
    assert run.status("a") is Status.OFFERED


def test_an_update_counted_in_the_last_round_is_still_acknowledged_after_this_one_was_abandoned():
    run = training("a")
    run.upload("a")
    run.tell(RoundClosed(1))
    run.plan("a")
    run.decline("a")
    assert run.phase is Phase.WAITING
    assert run.hear(update("a")) == [ack("a", update("a").blob.digest)]


def test_an_update_of_a_device_that_was_not_selected_is_refused():
    run = training("a")
    assert refusals(run.hear(update("z"))) == [("z", Reason.NOT_SELECTED)]


@pytest.mark.parametrize("odd", [{"number": 2}, {"attempt": 2}, {"run": "run-0"}])
def test_an_update_of_another_task_is_refused_as_stale(odd):
    run = training("a")
    assert refusals(run.hear(update("a", **odd))) == [("a", Reason.STALE_ROUND)]
    assert run.status("a") is Status.OFFERED


def test_an_update_after_the_deadline_is_refused_as_stale():
    run = training("a", "b")
    run.upload("b")
    run.wait(100)
    assert refusals(run.hear(update("a"))) == [("a", Reason.STALE_ROUND)]


def test_an_update_that_claims_more_than_fits_its_sub_model_is_refused_at_once():
    run = training("a", "b")
    large = update("a", blob=BlobRef(digest="0" * 64, size=MAX_BYTES + 1, chunk_bytes=CHUNK))
    commands = run.hear(large)
    assert refusals(commands) == [("a", Reason.OVERSIZED)]
    assert request("a") not in commands
    assert run.status("a") is Status.REFUSED
    assert refusals(run.hear(large)) == [("a", Reason.OVERSIZED)]


def test_a_refusal_names_the_task_and_the_update_that_it_is_of():
    run = training("a", "b")
    wrong, stale = run.upload("a", reason=Reason.NOT_FINITE), run.hear(update("b", attempt=7))
    sent = [one.message for one in (*wrong, *stale) if isinstance(one, Send)]
    assert [(one.run, one.attempt, one.digest, one.reason) for one in sent] == [
        (RUN, 1, update("a").blob.digest, Reason.NOT_FINITE),
        (RUN, 7, update("b").blob.digest, Reason.STALE_ROUND),
    ]


def test_a_refused_update_gets_its_reason_back_and_the_round_goes_on_without_it():
    run = training("a", "b")
    commands = run.upload("a", reason=Reason.NOT_FINITE)
    assert refusals(commands) == [("a", Reason.NOT_FINITE)]
    assert Note("update refused", "a", Reason.NOT_FINITE, "") in commands
    (close,) = of(CloseRound, run.upload("b"))
    assert close.updates == {"b": update("b")}
    assert (close.selected, close.dropped, close.rejected) == (("a", "b"), (), {"a": Reason.NOT_FINITE})


def test_a_verdict_told_twice_counts_once():
    run = training("a", "b")
    run.upload("a")
    before = run.federation
    assert run.tell(UpdateChecked("a", update("a").blob.digest, Reason.NOT_FINITE)) == []
    assert run.federation == before


# --- the end of a round ---
def test_at_the_deadline_a_round_with_its_quorum_closes():
    run = training("a", "b", "c", quorum=0.5)
    run.upload("a")
    run.upload("b")
    assert of(CloseRound, run.wait(99)) == []
    (close,) = of(CloseRound, run.wait(1))
    # ceil(0.5 * 3) = 2 are enough.
    assert (sorted(close.updates), close.dropped) == (["a", "b"], ("c",))


def test_at_the_deadline_a_round_without_its_quorum_is_abandoned():
    run = training("a", "b", "c", quorum=0.5)
    run.upload("a")
    commands = run.wait(100)
    assert of(CloseRound, commands) == []
    assert [note.what for note in of(Note, commands)] == ["round abandoned"]
    assert announced(commands) == ["waiting"]
    assert (run.phase, run.federation.round) == (Phase.WAITING, 1)


def test_no_update_is_never_enough():
    run = training("a", quorum=0.0)
    run.hear(reply("a", accepted=False))
    assert run.phase is Phase.WAITING


def test_the_deadline_waits_for_an_update_that_is_being_checked():
    run = training("a")
    run.hear(update("a"))
    for event in chunks("a"):
        run.tell(event)
    assert run.wait(200) == []
    assert of(CloseRound, run.tell(UpdateChecked("a", update("a").blob.digest)))


def test_abandoned_rounds_are_planned_again_after_growing_pauses_and_given_up_in_the_end():
    run = training("a", attempts=3)
    pauses = []
    for _ in range(3):
        run.decline("a")
        began = run.now
        while run.phase is Phase.WAITING:
            run.wait(0.5)
        pauses.append(run.now - began)
        run.plan("a")
    assert pauses == [RETRY_S, 2 * RETRY_S, 4 * RETRY_S]
    commands = run.decline("a")
    (end,) = of(End, commands)
    assert (end.outcome, announced(commands)) == ("failed", ["federation-end"])
    assert "given up after 4 attempts" in end.detail
    assert run.phase is Phase.ENDED


def test_pauses_begin_anew_with_the_next_round():
    run = training("a")
    run.decline("a")
    run.wait(RETRY_S)
    run.plan("a")
    run.upload("a")
    run.tell(RoundClosed(1))
    run.plan("a")
    run.decline("a")
    assert run.wait(RETRY_S - 0.1) == []
    assert of(PlanRound, run.wait(0.1))


def test_the_same_update_may_count_again_in_the_next_attempt_of_an_abandoned_round():
    run = training("a", "b", quorum=1.0)
    run.upload("a")
    run.decline("b")
    run.wait(RETRY_S)
    run.plan("a")
    (close,) = of(CloseRound, run.upload("a"))
    # The same bytes, as an answer to the second attempt.
    assert close.updates == {"a": update("a", attempt=2)}


def test_an_update_that_was_confirmed_is_confirmed_again_after_its_round_was_abandoned():
    # Its device may have lost the first answer and must not take it for refused.
    run = training("a", "b", quorum=1.0)
    run.upload("a")
    run.decline("b")
    again = [ack("a", update("a").blob.digest)]
    assert run.hear(update("a")) == again
    run.wait(RETRY_S)
    run.plan("a", "b")
    assert run.hear(update("a")) == again
    assert run.status("a") is Status.OFFERED


def test_an_update_of_an_abandoned_attempt_that_was_not_confirmed_is_stale():
    run = training("a", "b", quorum=1.0)
    run.hear(update("a"))
    run.decline("b")
    run.wait(100)
    run.wait(RETRY_S)
    run.plan("a", "b")
    assert refusals(run.hear(update("a"))) == [("a", Reason.STALE_ROUND)]
    assert run.status("a") is Status.OFFERED


def test_a_reply_to_an_abandoned_attempt_declines_nothing_in_the_next_one():
    run = training("a")
    run.decline("a")
    run.wait(RETRY_S)
    run.plan("a")
    assert run.hear(reply("a", accepted=False)) == [ack("a", None)]
    assert run.status("a") is Status.OFFERED


def test_after_an_abandonment_fewer_devices_are_enough_than_at_the_start():
    run = training("a", "b", "c", start_clients=3, min_clients=1)
    run.hear(death("b"))
    run.hear(death("c"))
    for device in "abc":
        run.decline(device)
    (plan,) = of(PlanRound, run.wait(RETRY_S))
    assert [device.name for device in plan.devices] == ["a"]


def test_rounds_follow_each_other_and_end_in_a_delivery():
    run = training("a", rounds=2)
    run.upload("a")
    (plan,) = of(PlanRound, run.tell(RoundClosed(1)))
    assert (plan.round, plan.deliver) == (2, False)
    run.plan("a")
    run.upload("a")
    (plan,) = of(PlanRound, run.tell(RoundClosed(2)))
    assert (plan.round, plan.deliver) == (2, True)


def test_a_run_that_shall_not_deliver_ends_after_its_last_round():
    run = training("a", rounds=1, deliver=False)
    run.upload("a")
    commands = run.tell(RoundClosed(1))
    assert (announced(commands), of(End, commands)) == (["federation-end"], [End("finished")])
    assert of(PlanRound, commands) == []


@pytest.mark.parametrize("number", [0, 2])
def test_the_end_of_another_rounds_aggregation_is_ignored(number):
    run = training("a")
    run.upload("a")
    assert run.tell(RoundClosed(number)) == []
    assert run.phase is Phase.CLOSING


# --- devices that come and go ---
def test_a_dead_device_delays_a_round_by_no_more_than_rejoin_s():
    run = training("a", "b", rejoin_s=15)
    run.hear(reply("a"))
    run.now = 10.0
    run.hear(death("a"))
    run.upload("b")
    assert of(CloseRound, run.wait(14.9)) == []
    (close,) = of(CloseRound, run.wait(0.1))
    assert close.dropped == ("a",)


def test_a_late_last_will_of_an_older_session_changes_nothing():
    run = training("a", "b")
    run.hear(birth("a", session=5))
    before = run.federation
    assert run.hear(death("a", session=4)) == []
    run.wait(50)
    assert run.federation.fleet == before.fleet
    assert run.status("a") is Status.OFFERED


def test_a_device_that_joins_late_waits_for_the_next_round():
    run = training("a")
    assert run.hear(birth("b")) == []
    assert "b" not in run.federation.participants
    run.upload("a")
    (plan,) = of(PlanRound, run.tell(RoundClosed(1)))
    assert [device.name for device in plan.devices] == ["a", "b"]


@pytest.mark.parametrize("accepted", [False, True])
def test_a_device_that_returns_is_offered_its_task_again_at_once(accepted):
    run = training("a", rejoin_s=50)
    if accepted:
        run.hear(reply("a"))
    run.now = 20.0
    run.hear(death("a"))
    commands = run.hear(birth("a", session=2))
    assert offers(commands) == ["a"]
    assert of(Send, commands)[0].message.deadline_s == 80.0
    assert run.status("a") is Status.OFFERED


def test_a_device_that_returns_before_its_last_will_is_offered_its_task_again():
    run = training("a")
    run.hear(reply("a"))
    assert offers(run.hear(birth("a", session=2))) == ["a"]


def test_a_birth_told_again_offers_nothing():
    run = training("a")
    run.hear(reply("a"))
    assert run.hear(birth("a")) == []
    assert run.hear(birth("a", session=0)) == []


def test_the_upload_of_a_device_that_returns_goes_on_where_it_was():
    run = training("a", rejoin_s=50)
    run.hear(update("a"))
    run.tell(chunks("a")[0])
    run.hear(death("a"))
    assert run.wait(PATIENCE_S) == []
    commands = run.hear(birth("a", session=2))
    assert request("a", first=1, count=2) in commands
    assert run.status("a") is Status.UPLOADING


def test_a_device_that_is_done_is_offered_nothing_when_it_returns():
    run = training("a", "b")
    run.upload("a")
    run.hear(death("a"))
    assert run.hear(birth("a", session=2)) == []


def test_a_device_that_was_given_up_waits_for_the_next_round():
    run = training("a", "b", rejoin_s=5)
    run.hear(death("a"))
    run.wait(5)
    assert run.status("a") is Status.MISSED
    assert run.hear(birth("a", session=2)) == []


# --- blob requests ---
@pytest.mark.parametrize("ref", [STATE, SMALL_MAP])
def test_the_blobs_of_its_task_are_given_to_a_device(ref):
    run = training("a")
    wanted = BlobRequest(federation=NAME, device="a", digest=ref.digest, first=1, count=2)
    assert run.hear(wanted) == [SendChunks("a", ref, 1, 2)]


@pytest.mark.parametrize(("device", "digest"), [("a", "0" * 64), ("z", STATE.digest)])
def test_no_other_blob_and_to_no_other_device(device, digest):
    run = training("a")
    wanted = BlobRequest(federation=NAME, device=device, digest=digest, first=0, count=1)
    answer = Refusal(federation=NAME, device=device, reason=Reason.UNKNOWN_BLOB, digest=digest)
    assert run.hear(wanted) == [Send(device, answer)]


# --- delivery and the end ---
def test_a_run_ends_when_every_device_has_its_model():
    run = delivering("a", "b")
    commands = run.hear(delivery("a"))
    assert commands == [Deliver(delivery("a")), ack("a", None, 2)]
    commands = run.hear(delivery("b"))
    assert of(End, commands) == [End("finished")]
    assert announced(commands) == ["federation-end"]


def test_a_delivery_told_again_is_acknowledged_and_counted_once():
    run = delivering("a", "b")
    run.hear(delivery("a"))
    assert run.hear(delivery("a")) == [ack("a", None, 2)]


def test_a_device_that_cannot_deliver_does_not_hold_up_the_end():
    run = delivering("a", "b")
    run.hear(delivery("a"))
    assert of(End, run.wait(100)) == [End("finished")]


def test_a_run_without_anyone_to_deliver_to_ends():
    run = training("a", rounds=1)
    run.upload("a")
    run.tell(RoundClosed(1))
    assert of(End, run.plan(deliver=True)) == [End("finished")]


def test_an_offer_of_delivery_is_repeated_and_again_after_a_return():
    run = delivering("a")
    assert offers(run.wait(OFFER_PATIENCE_S)) == ["a"]
    run.hear(reply("a", attempt=2))
    assert run.status("a") is Status.ACCEPTED
    assert offers(run.hear(birth("a", session=2))) == ["a"]


def test_an_update_during_the_delivery_is_acknowledged_where_it_counted():
    run = delivering("a")
    assert run.hear(update("a")) == [ack("a", update("a").blob.digest)]
    assert refusals(run.hear(update("a", 1))) == [("a", Reason.ALREADY_COUNTED)]


def test_a_failure_of_training_that_is_told_again_does_not_decline_the_delivery_of_the_same_round():
    run = training("a", "b", rounds=1)
    failure = reply("a", accepted=False, reason=Reason.TASK_FAILED)
    run.hear(failure)
    run.upload("b")
    run.tell(RoundClosed(1))
    run.plan("a", "b", deliver=True)
    assert ack("a", None) in run.hear(failure)
    assert run.status("a") is Status.OFFERED


@pytest.mark.parametrize("make", [lambda: started(), lambda: training("a"), lambda: delivering("a")])
def test_a_stop_announces_the_end(make):
    run = make()
    commands = run.tell(Stopped())
    end = FederationEnd(federation=NAME, run=RUN, outcome="interrupted", rounds=run.federation.rules.rounds)
    assert commands == [Announce(end), End("interrupted", "stopped by the user")]
    assert run.tell(Stopped()) == []
    assert run.wait(1000) == []
    assert run.hear(birth("b")) == []


def test_what_is_announced_says_where_the_run_is():
    run = training("a", "b")
    (message,) = [one.message for one in of(Announce, run.log) if one.message.phase == "training"]
    assert message == RoundAnnouncement(
        federation=NAME, run=RUN, round=1, rounds=2, phase="training", selected=2
    )


def test_the_announced_phase_says_when_updates_are_aggregated():
    run = training("a")
    assert announced(run.upload("a")) == ["aggregating"]
