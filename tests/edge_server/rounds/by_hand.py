"""Drive a federation event by event, and build the events and messages for it."""

from dataclasses import dataclass, field

from edge_server.rounds import events, machine
from edge_server.rounds.machine import Federation, Phase, RoundRules
from edge_server.rounds.participant import Status
from schemas import messages
from schemas.errors import Reason
from schemas.tensors.chunks import BlobRef, Chunk, digest_of
from schemas.values import DeliveryMetrics
from tests.edge_server.rounds.test_fleet import birth
from tests.schemas.examples import plain_task, plain_update

NAME, RUN, CHUNK, MAX_BYTES = "home", "run-1", 1024, 5000


def ref_of(data: bytes) -> BlobRef:
    return BlobRef(digest=digest_of(data), size=len(data), chunk_bytes=CHUNK)


def answer_of(device: str, version: int = 0) -> bytes:
    """Return an update's bytes: three chunks, so it is not sent inline."""
    return f"{device}{version}".encode() * 1200


STATE, SMALL_MAP = ref_of(b"s" * 2500), ref_of(b"map")


@dataclass
class Run:
    """A federation and its clock; `tell` and `wait` return the resulting commands.

    Routine notes are only in the log.
    """

    federation: Federation
    now: float = 0.0
    log: list = field(default_factory=list)

    def tell(self, event) -> list:
        self.federation, commands = machine.step(self.federation, event, self.now)
        self.log += commands
        return [command for command in commands if not (isinstance(command, events.Note) and command.routine)]

    def hear(self, message) -> list:
        return self.tell(events.MessageReceived(message))

    def wait(self, seconds: float) -> list:
        self.now += seconds
        return self.tell(events.Tick())

    def status(self, device: str) -> Status:
        return self.federation.participants[device].status

    @property
    def phase(self) -> Phase:
        return self.federation.phase

    @property
    def task(self) -> dict[str, messages.Task]:
        return {
            name: participant.assignment.task for name, participant in self.federation.participants.items()
        }

    def plan(self, *devices: str, deliver: bool = False, needed: int | None = None, **more) -> list:
        number, attempt = self.federation.round, self.federation.attempt
        tasks = {name: assignment(number, attempt, deliver=deliver, **more) for name in devices}
        return self.tell(events.RoundPlanned(attempt, tasks, needed))

    def decline(self, device: str) -> list:
        return self.hear(reply(device, self.federation.round, self.federation.attempt, accepted=False))

    def claim(self, device: str, version: int = 0) -> messages.Update:
        """The device's update for its task."""
        return update(device, version, self.task[device].round, self.task[device].attempt)

    def upload(self, device: str, version: int = 0, reason: Reason | None = None, detail: str = "") -> list:
        """The device uploads its whole update, and the check ends with `reason` and `detail`."""
        claim = self.claim(device, version)
        commands = self.hear(claim)
        for event in chunks(device, version):
            commands += self.tell(event)
        assert events.CheckUpdate(device, claim) in commands
        return self.tell(events.UpdateChecked(device, claim.blob.digest, reason, detail))


def assignment(number: int = 1, attempt: int = 1, *, deliver: bool = False, **more) -> events.Assignment:
    blobs = {"state": STATE, "channel-map": SMALL_MAP}
    task = plain_task(
        messages.DeliverTask if deliver else messages.TrainTask, round=number, attempt=attempt, blobs=blobs
    )
    return events.Assignment(task.model_copy(update=more), MAX_BYTES)


def update(
    device: str, version: int = 0, number: int = 1, attempt: int | None = None, **more
) -> messages.Update:
    """An update of round `number`; its attempt defaults to the same number."""
    about = {"round": number, "attempt": attempt or number, "blob": ref_of(answer_of(device, version))}
    return plain_update(device, 1, **(about | more))


def chunks(device: str, version: int = 0) -> list[events.ChunkReceived]:
    data = answer_of(device, version)
    starts = range(0, len(data), CHUNK)
    prefix = digest_of(data)[:16]
    return [
        events.ChunkReceived(device, Chunk(prefix, n, data[at : at + CHUNK])) for n, at in enumerate(starts)
    ]


def reply(
    device: str, number: int = 1, attempt: int | None = None, *, accepted: bool = True, run: str = RUN, **more
) -> messages.TaskReply:
    common = {"federation": NAME, "device": device, "run": run, "round": number}
    return messages.TaskReply(**common, attempt=attempt or number, accepted=accepted, **more)


def delivery(device: str, number: int = 1, attempt: int = 2) -> messages.Delivery:
    """A delivery; its attempt follows the attempt that trained the round."""
    sizes = {"parameters": 1, "macs": 1, "onnx_bytes": 1, "examples": 1, "max_difference": 0, "latency_ms": 1}
    metrics = DeliveryMetrics(onnx_sha256="0" * 64, **sizes)
    return messages.Delivery(
        federation=NAME, device=device, run=RUN, round=number, attempt=attempt, metrics=metrics
    )


def ack(device: str, digest: str | None, attempt: int = 1) -> events.Send:
    answer = messages.Acknowledgement(federation=NAME, device=device, run=RUN, attempt=attempt, digest=digest)
    return events.Send(device, answer)


def request(device: str, version: int = 0, first: int = 0, count: int = 3) -> events.Send:
    digest = digest_of(answer_of(device, version))
    return events.Send(
        device, messages.BlobRequest(federation=NAME, device=device, digest=digest, first=first, count=count)
    )


def refusals(commands: list) -> list[tuple[str, Reason]]:
    return [
        (command.device, command.message.reason)
        for command in commands
        if isinstance(command, events.Send) and isinstance(command.message, messages.Refusal)
    ]


def offers(commands: list) -> list[str]:
    return [
        command.device
        for command in commands
        if isinstance(command, events.Send) and isinstance(command.message, messages.Task)
    ]


def announced(commands: list) -> list[str]:
    found = [command.message for command in commands if isinstance(command, events.Announce)]
    return [getattr(message, "phase", message.kind) for message in found]


def of(kind: type, commands: list) -> list:
    return [command for command in commands if isinstance(command, kind)]


def started(*devices: str, **rules) -> Run:
    run = Run(Federation(NAME, RUN, RoundRules(**{"rounds": 2, "deadline_s": 100.0, **rules})))
    run.tell(events.Started())
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
    """A run of one round that has reached its delivery."""
    run = training(*devices, rounds=1)
    for device in devices:
        run.upload(device)
    run.tell(events.RoundClosed(1))
    run.plan(*devices, deliver=True)
    assert run.phase is Phase.DELIVERING
    return run
