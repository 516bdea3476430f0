"""Decodes and counts messages of devices for the round machine, and refuses faulty ones."""

import contextlib
import logging
from collections.abc import Iterator

from edge_client.storage.blob_store import BlobStore
from edge_server.coordinator.reporter import RunReporter
from edge_server.coordinator.round_driver import RoundDriver
from edge_server.rounds.events import ChunkReceived, MessageReceived, Misbehaved, SiteChunkReceived, SiteSpoke
from edge_server.transport.broker_connection import check_sender, read_of_site
from edge_server.transport.receivers.messages import Misfit, NoRoom, Placed, ReceiverMessage, Unable
from edge_server.transport.receivers.pool import ReceiverPool
from schemas import messages
from schemas.base import is_of_site
from schemas.errors import ConfigError, PeerError, Reason
from schemas.tensors.chunks import CHUNK_HEADER_BYTES, NO_CHUNKS, Chunk, ChunkSet, decode_chunk
from schemas.topics import Channel, DeviceTopic, SiteTopic

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

    def take(self, topic: DeviceTopic | SiteTopic, payload: bytes, *, retained: bool = False) -> None:
        """Take a message; raises `PeerError` for one that speaks for devices of others."""
        if topic.channel in (Channel.UP_ROLLOUT, Channel.UP_FLEET):
            return  # rollouts and operators have connections of their own
        self._check_way(topic)
        if isinstance(topic, SiteTopic) and not topic.device:
            self._take_of_site(topic, payload)
        else:
            self._take_of_device(topic, payload, retained=retained)

    def _check_way(self, topic: DeviceTopic | SiteTopic) -> None:
        """Raise `PeerError` unless the message comes by the way that its device's name says.

        Its device is not refused: who wrote the message is somebody else.
        """
        sites = self._driver.federation.sites
        if isinstance(topic, DeviceTopic):
            if site := sites.of(topic.device):
                detail = f"{topic.device} is a device of the site '{site}', whose gateway speaks for it"
                raise PeerError(detail, reason=Reason.WRONG_SENDER)
        elif topic.site not in sites.names:
            detail = f"'{topic.site}' is not a site of this federation: [federation] sites does not name it"
            if topic.channel is Channel.BIRTH and not topic.device:
                self._driver.refuse_site(topic.site, detail)
            raise PeerError(detail, reason=Reason.WRONG_SENDER)
        elif topic.device and sites.of(topic.device) != topic.site:
            detail = (
                f"the gateway of '{topic.site}' speaks for {topic.device}, which is not one of its devices"
            )
            raise PeerError(detail, reason=Reason.WRONG_SENDER)

    def _take_of_site(self, topic: SiteTopic, payload: bytes) -> None:
        """Take a message of a gateway about its site."""
        self._reporter.counters.count_received(topic.site, len(payload))
        if topic.channel is Channel.UP_BLOB:
            self._driver.step(SiteChunkReceived(topic.site, decode_chunk(payload)))
        elif payload:
            message = read_of_site(topic.site, payload, self._driver.federation.name)
            self._driver.step(SiteSpoke(topic.site, message))

    def _take_of_device(self, topic: DeviceTopic | SiteTopic, payload: bytes, *, retained: bool) -> None:
        with self._guard_message(topic.device, len(payload)):
            if topic.channel is Channel.UP_BLOB:
                chunk = decode_chunk(payload)
                self._reporter.counters.note_contact(topic.device)
                self._driver.step(ChunkReceived(topic.device, chunk))
            elif payload:
                self._take_message(topic, payload, retained=retained)

    def take_from_receiver(self, message: ReceiverMessage) -> None:
        """Take a receiver's message; raises `OSError` or `ConfigError` if the receiver cannot work."""
        check_able(message)
        if isinstance(message, Placed | Misfit):
            with self._guard_message(message.device, bytes_of(message)):
                chunk = chunk_of(message)
                self._reporter.counters.note_contact(message.device)
                self._driver.step(chunk)

    @contextlib.contextmanager
    def _guard_message(self, device: str, size: int) -> Iterator[None]:
        """Count a message of a device, and refuse it if it is faulty."""
        self._reporter.counters.count_received(device, size)
        try:
            yield
        except PeerError as error:
            self._refuse(device, error)

    def _take_message(self, topic: DeviceTopic | SiteTopic, payload: bytes, *, retained: bool) -> None:
        message = messages.decode_message(payload, federation=self._driver.federation.name)
        if not isinstance(message, messages.FromDevice):
            raise PeerError(f"a device does not send '{message.kind}'", reason=Reason.UNKNOWN_KIND)
        check_sender(topic, kind=message.kind, device=message.device)
        _check_receipt(topic, message)
        if not isinstance(message, messages.Death) and not retained:
            # The broker sends a death in the device's place, and what it has stored.
            self._reporter.counters.note_contact(message.device)
        if isinstance(message, messages.Telemetry):
            self._reporter.counters.keep_telemetry(message)
        fleet = self._driver.federation.fleet
        if isinstance(message, messages.Refusal) and not fleet.questions(message.device):
            extra = {"device": message.device, "reason": message.reason}
            log.info("%s refuses (%s): %s", *extra.values(), message.detail, extra=extra)
            if message.reason is Reason.SUPERSEDED:
                self._reporter.counters.count_refusal(message.device, message.reason)
        accepted = isinstance(message, messages.Update) and self._driver.was_accepted(message)
        have = self._have(message)
        self._driver.step(MessageReceived(message, have=have, accepted=accepted, retained=retained))
        if isinstance(message, messages.Update | messages.Delivery):
            self._count_claim(message)
        if isinstance(message, messages.Update):
            self._expect(message)

    def _have(self, message: messages.FromDevice) -> ChunkSet:
        """The chunks of a claimed update that arrived before the restart."""
        sent = message.sent_blob if isinstance(message, messages.Update) else None
        if sent is None or sent.digest not in self._partial:
            return NO_CHUNKS
        self._partial.discard(sent.digest)
        return self._store.present(sent)

    def _count_claim(self, result: messages.Update | messages.Delivery) -> None:
        """Count the bytes that a device reports from broadcasts and the object store."""
        participant = self._driver.federation.participants.get(result.device)
        if participant is None or not participant.is_meant(result):
            return
        task = participant.assignment.task
        self._reporter.counters.indirect.count_claim(
            result.device,
            result.attempt,
            heard=result.heard_bytes,
            fetched=result.fetched_bytes,
            most_fetched=0 if task.depot is None else sum(ref.size for ref in task.blobs.values()),
        )

    def _expect(self, claim: messages.Update) -> None:
        """Let the receivers write the chunks of an accepted claim."""
        participant = self._driver.federation.participants.get(claim.device)
        if participant is None or self._driver.federation.sites.of(claim.device):
            return  # receivers do not hear sites
        if participant.update == claim and not participant.final:
            self._receivers.expect(claim.device, claim.blob)

    def _refuse(self, device: str, error: PeerError) -> None:
        """Log and count the fault, and send the device the reason."""
        self._reporter.report_ignored(error, device)
        refusal = messages.Refusal.of(error, self._driver.federation.name, device)
        self._driver.tell(device, refusal)
        self._driver.step(Misbehaved(device, refusal.reason))


def _check_receipt(topic: DeviceTopic | SiteTopic, message: messages.FromDevice) -> None:
    """Raise `PeerError` for a receipt that no gateway on the way to the device has added."""
    receipt = message.receipt if isinstance(message, messages.Update) else None
    if receipt is None:
        return
    site = receipt.site
    way = isinstance(topic, SiteTopic) and (site == topic.site or is_of_site(site, topic.site))
    if not way or not is_of_site(topic.device, site):
        detail = f"an update of {topic.device} with a receipt of '{site}', which is not its site"
        raise PeerError(detail, reason=Reason.WRONG_SENDER)


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
            message.detail,
            key="[federation] receivers",
            remedy="leave receivers at 0, or use a broker with shared subscriptions (Mosquitto 2, EMQX, "
            "HiveMQ, or the embedded one)",
        )
