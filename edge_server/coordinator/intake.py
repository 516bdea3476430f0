"""Decodes and counts messages of devices for the round machine, and refuses faulty ones."""

import contextlib
import logging
from collections.abc import Iterator

from edge_client.storage.blob_store import BlobStore
from edge_server.coordinator.reporter import RunReporter
from edge_server.coordinator.round_driver import RoundDriver
from edge_server.rounds.events import ChunkReceived, MessageReceived, Misbehaved
from edge_server.transport.broker_connection import check_sender
from edge_server.transport.receivers.messages import Misfit, NoRoom, Placed, ReceiverMessage, Unable
from edge_server.transport.receivers.pool import ReceiverPool
from schemas.errors import ConfigError, PeerError
from schemas.messages import Death, Delivery, FromDevice, Refusal, Telemetry, Update, decode_message
from schemas.tensors.blobs import CHUNK_HEADER_BYTES, Chunk, decode_chunk
from schemas.topics import Channel, DeviceTopic
from schemas.values import Reason

log = logging.getLogger(__name__)


class Intake:
    """Takes the messages of one run; `partial` are blobs with chunks from before a restart."""

    def __init__(
        self,
        driver: RoundDriver,
        reporter: RunReporter,
        receivers: ReceiverPool,
        store: BlobStore,
        *,
        partial: set[str],
    ) -> None:
        self._driver, self._reporter, self._receivers = driver, reporter, receivers
        self._store, self._partial = store, partial

    def take(self, topic: DeviceTopic, payload: bytes) -> None:
        """Take a message from the broker."""
        if topic.channel is Channel.UP_ROLLOUT:
            return  # a rollout has its own connection
        with self._received(topic.device, len(payload)):
            if topic.channel is Channel.UP_BLOB:
                chunk = decode_chunk(payload)
                self._reporter.counters.heard(topic.device)
                self._driver.step(ChunkReceived(topic.device, chunk))
            elif payload:
                self._take_message(topic, payload)

    def take_from_receiver(self, message: ReceiverMessage) -> None:
        """Take a receiver's message; raises `OSError` or `ConfigError` if the receiver cannot work."""
        check_able(message)
        if isinstance(message, Placed | Misfit):
            with self._received(message.device, bytes_of(message)):
                chunk = chunk_of(message)
                self._reporter.counters.heard(message.device)
                self._driver.step(chunk)

    @contextlib.contextmanager
    def _received(self, device: str, size: int) -> Iterator[None]:
        """Count a message of a device, and refuse it if it is faulty."""
        self._reporter.counters.received(device, size)
        try:
            yield
        except PeerError as error:
            self._refuse(device, error)

    def _take_message(self, topic: DeviceTopic, payload: bytes) -> None:
        message = decode_message(payload, federation=self._driver.federation.name)
        if not isinstance(message, FromDevice):
            raise PeerError(f"a device does not send '{message.kind}'", reason=Reason.UNKNOWN_KIND)
        check_sender(topic, kind=message.kind, device=message.device)
        if not isinstance(message, Death):
            # The broker sends a death in the device's place.
            self._reporter.counters.heard(message.device)
        if isinstance(message, Telemetry):
            self._reporter.counters.reported(message)
        if isinstance(message, Refusal) and not self._driver.federation.fleet.doubts(message.device):
            extra = {"device": message.device, "reason": message.reason}
            log.info("%s refuses (%s): %s", *extra.values(), message.detail, extra=extra)
            if message.reason is Reason.SUPERSEDED:
                self._reporter.counters.refused(message.device, message.reason)
        self._driver.step(MessageReceived(message, have=self._have(message)))
        if isinstance(message, Update | Delivery):
            self._count_claim(message)
        if isinstance(message, Update):
            self._expect(message)

    def _have(self, message: FromDevice) -> int:
        """Bitmap of the chunks of a claimed update that arrived before the restart."""
        if not isinstance(message, Update) or message.blob.digest not in self._partial:
            return 0
        self._partial.discard(message.blob.digest)
        return self._store.present(message.blob)

    def _count_claim(self, result: Update | Delivery) -> None:
        """Count the bytes that a device reports from broadcasts and the object store."""
        participant = self._driver.federation.participants.get(result.device)
        if participant is None or not participant.is_meant(result):
            return
        task = participant.assignment.task
        self._reporter.counters.indirect.claimed(
            result.device,
            result.attempt,
            heard=result.heard_bytes,
            fetched=result.fetched_bytes,
            most_fetched=0 if task.depot is None else sum(ref.size for ref in task.blobs.values()),
        )

    def _expect(self, claim: Update) -> None:
        """Let the receivers write the chunks of an accepted claim."""
        participant = self._driver.federation.participants.get(claim.device)
        if participant is not None and participant.update == claim and not participant.final:
            self._receivers.expect(claim.device, claim.blob)

    def _refuse(self, device: str, error: PeerError) -> None:
        """Log and count the fault, and send the device the reason."""
        self._reporter.ignored(error, device)
        refusal = Refusal(
            federation=self._driver.federation.name,
            device=device,
            reason=Reason(error.reason),
            detail=str(error)[:500],
        )
        self._driver.tell(device, refusal)
        self._driver.step(Misbehaved(device, refusal.reason))


def bytes_of(message: Placed | Misfit) -> int:
    """The size in bytes of the MQTT payload that the device sent."""
    return message.size + CHUNK_HEADER_BYTES if isinstance(message, Placed) else message.size


def chunk_of(message: Placed | Misfit) -> ChunkReceived:
    """The received chunk; raises `PeerError` if the payload was none."""
    if isinstance(message, Misfit):
        raise PeerError(message.detail, reason=Reason(message.reason))
    # The receiver has written the bytes; the round machine needs only their number.
    return ChunkReceived(message.device, Chunk(message.prefix, message.index, bytes(message.size)))


def check_able(message: ReceiverMessage) -> None:
    """Raise `OSError` if the disk is full, and `ConfigError` if receivers cannot work with this broker."""
    if isinstance(message, NoRoom):
        raise OSError(message.errno, message.detail)
    if isinstance(message, Unable):
        raise ConfigError(
            f"[federation] receivers: {message.detail}: leave receivers at 0, or use a broker with shared "
            "subscriptions (Mosquitto 2, EMQX, HiveMQ, or the embedded one)"
        )
