"""One connected device: the real session machine without training."""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache

from edge_client.agent.session import events, machine
from edge_client.agent.session.machine import Session, SessionPhase
from edge_client.transport.chunk_transfer import VerifyBlob
from edge_server.transport.broker.packets import Will
from schemas.errors import PeerError
from schemas.messages import AnyMessage, Birth, Death, Task, Update, decode_message, encode_message
from schemas.topics import ROOT, Channel, DeviceTopic, SharedTopic, StateTopic, device_filters
from schemas.values import CapabilityProfile, DataCard
from tests.benchmarks.crowd.contents import Contents, Upload
from tests.benchmarks.crowd.wire import Arrived, Client
from tests.benchmarks.untrained import answer

TIERS = 5
EXAMPLES = 600


@dataclass
class Place:
    """What the devices of one process have in common; `counts` are their counters, added up."""

    federation: str
    contents: Contents
    counts: Counter[str] = field(default_factory=Counter)


def tier_of(number: int) -> int:
    """Assign the tiers to device numbers in turn."""
    return 1 + number % TIERS


def device_name(number: int) -> str:
    """The name of device `number`."""
    return f"board-{number:05d}"


def plain_topic(federation: str, layer: int) -> str:
    """The topic on which the floor publishes a layer of the model to all devices that have it."""
    return f"{ROOT}/{federation}/plain/{layer}"


class Device:
    """A device of a federation."""

    def __init__(self, place: Place, number: int) -> None:
        self._place, self.number = place, number
        self.name, self.tier = device_name(number), tier_of(number)
        topics = {channel: str(DeviceTopic(place.federation, self.name, channel)) for channel in Channel}
        self.topics, self._state_topic = topics, str(StateTopic(place.federation))
        self._born = time.time_ns() // 1_000_000
        self._session = Session(place.federation, self.name)
        self._upload: Upload | None = None
        self._listens: tuple[int, ...] = ()
        self.plain: PlainPart | None = None
        layers = [plain_topic(place.federation, layer) for layer in range(1, self.tier + 1)]
        self.client = Client(
            f"{place.federation}-{self.name}",
            (*device_filters(place.federation, self.name), *layers),
            on_message=self._arrived,
            on_ready=self._ready,
            will=Will(topics[Channel.BIRTH], encode_message(self._death()), qos=1, retain=True),
        )

    def tick(self, now: float) -> None:
        """Handle the passing of time; an idle device does nothing."""
        if self._session.phase is not SessionPhase.IDLE:
            self._step(events.Tick(), now)

    # --- incoming events ---
    def _ready(self) -> None:
        self._place.counts["ready"] += 1
        self.client.publish(self.topics[Channel.BIRTH], encode_message(self._birth()), retain=True)
        self._step(events.Connected())

    def _arrived(self, arrived: Arrived) -> None:
        counts = self._place.counts
        if self.plain is not None:
            self.plain.arrived(arrived)
        elif arrived.topic == self.topics[Channel.DOWN_BLOB]:
            counts["chunks"] += 1
            counts[f"down {self.tier}"] += arrived.stop - arrived.start
            self._step(events.ChunkArrived(self._place.contents.chunk(arrived)))
        elif "/layers/" in arrived.topic:
            counts["shared chunks"] += 1
            counts[f"down {self.tier}"] += arrived.stop - arrived.start
            self._step(events.ChunkArrived(self._place.contents.chunk(arrived), shared=True))
        elif arrived.stop > arrived.start:
            own = arrived.topic != self._state_topic
            if own:
                counts["control"] += 1
                counts["control bytes"] += 5 + len(arrived.topic) + arrived.stop - arrived.start
            message = (decode_message if own else _announced)(
                arrived.payload, federation=self._place.federation
            )
            self._step(events.Received(message))

    def _step(self, event: events.Event, now: float | None = None) -> None:
        try:
            stepped = machine.step(self._session, event, time.monotonic() if now is None else now)
        except PeerError as error:
            self._place.counts[f"ignored: {error.reason}"] += 1
            return
        self._session, commands = stepped
        # Before the reply to a task, which confirms the subscription to these topics.
        listens = self._session.listens
        if listens != self._listens:
            self._listens = listens
            self.client.listen(frozenset(str(SharedTopic(self._place.federation, n)) for n in listens))
        for command in commands:
            self._do(command)

    # --- the machine's commands ---
    def _do(self, command: events.Command) -> None:
        match command:
            case events.SendMessage(message):
                self._place.counts[f"sent {message.kind}"] += 1
                self.client.publish(self.topics[Channel.UP], encode_message(message))
            case events.SendChunks(ref, first, count):
                for index in range(first, min(first + count, ref.chunks)):
                    self._send_chunk(index)
            case VerifyBlob(ref):
                self._step(events.BlobChecked(ref.digest, self._place.contents.sound(ref)))
            case events.StartWork(task):
                self._step(events.WorkDone(self._update(task)))
            case events.Settled(_, refusal):
                self._place.counts["refused" if refusal else "accepted"] += 1
                if refusal:
                    self._place.counts[f"refused: {refusal.reason} {refusal.detail}"] += 1
                kept = (
                    {ref.digest for ref in self._session.task.blobs.values()} if self._session.task else set()
                )
                self._session = replace(self._session, held=frozenset(kept))
            case _:
                pass

    def _send_chunk(self, index: int) -> None:
        upload = self._upload
        if upload is not None:
            topic = self.topics[Channel.UP_BLOB]
            self.client.publish_later(lambda: (topic, *upload.frame(index)))

    def _update(self, task: Task) -> Update:
        self._upload = self._place.contents.answer(task, self.number)
        self._place.counts[f"tier {self.tier}"] += 1
        self._place.counts[f"up {self.tier}"] += self._upload.ref.size
        return answer(task, self.name, self._upload.ref, examples=EXAMPLES)

    def _birth(self) -> Birth:
        profile = CapabilityProfile(machine="board", cores=4, memory_bytes=10**9, tier=self.tier)
        card = DataCard(source="MNIST", examples=EXAMPLES, input_shape=(1, 28, 28), num_classes=10)
        return Birth(
            federation=self._place.federation,
            device=self.name,
            session=self._born,
            profile=profile,
            data=card,
        )

    def _death(self) -> Death:
        return Death(federation=self._place.federation, device=self.name, session=self._born)


@lru_cache(maxsize=16)
def _announced(payload: bytes, *, federation: str) -> AnyMessage:
    """Decode a message to all devices once."""
    return decode_message(payload, federation=federation)


class PlainPart:
    """A device's part in the floor: it receives `down` bytes, and sends `up` bytes when it is its turn.

    Only the length of received chunks is read. `came` is called with the topic of every chunk.
    """

    def __init__(
        self, device: Device, *, down: int, up: int, chunk: bytes, came: Callable[[str], None]
    ) -> None:
        self._client, self._came = device.client, came
        self._topic, self._turn_topic = device.topics[Channel.UP_BLOB], device.topics[Channel.DOWN]
        self._down, self._up, self._chunk = down, up, chunk
        self._turn = False

    def arrived(self, arrived: Arrived) -> None:
        """Handle bytes of the model, or the message that it is this device's turn."""
        if arrived.topic == self._turn_topic:
            self._turn = True
        else:
            self._down -= arrived.stop - arrived.start
            self._came(arrived.topic)
        if self._turn and self._down == 0:
            self._turn = False
            self._send()

    def _send(self) -> None:
        whole = memoryview(self._chunk)
        for at in range(0, self._up, len(whole)):
            part = whole[: min(len(whole), self._up - at)]
            self._client.publish_later(lambda part=part: (self._topic, b"", part))
