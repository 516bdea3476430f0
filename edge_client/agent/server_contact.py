"""Whether a server answers this device, as a pure state machine.

The broker may be up while the server is down or serves another federation. So the device requests a blob
that does not exist, which a server refuses at once, and warns the user if no answer comes. A birth that the
server rejects for lack of room is repeated later.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial

from edge_client.storage.blob_store import BlobStore
from edge_client.transport.mqtt_client import Link
from schemas.errors import PeerError
from schemas.messages import AnyMessage, Message, Refusal, decode_message, encode_message
from schemas.tensors.chunks import BlobRef
from schemas.topics import Channel, DeviceTopic, SharedTopic

# The topics of one device: messages out, messages decoded.


class Messenger:
    """Publishes on the topics of one device and decodes the messages that arrive on them."""

    def __init__(self, link: Link, federation: str, device: str) -> None:
        self._link, self._federation, self._device = link, federation, device

    def publish(self, channel: Channel, message: Message, *, retain: bool = False, qos: int = 1) -> None:
        """Publish a message, at least once unless `qos` is 0."""
        self._link.publish(self._topic(channel), encode_message(message), retain=retain, qos=qos)

    def publish_chunks(self, store: BlobStore, ref: BlobRef, indices: Iterable[int]) -> None:
        """Queue chunks of a blob; each is read from the store when its turn comes."""
        for index in indices:
            read = partial(store.read_frame, ref, index)
            self._link.send_chunk((ref.digest, index), self._topic(Channel.UP_BLOB), read)

    def subscribe(self, numbers: Iterable[int]) -> None:
        """Subscribe to exactly these shared topics."""
        self._link.listen(frozenset(str(SharedTopic(self._federation, number)) for number in numbers))

    def limit_chunks(self, chunk_bytes: int) -> None:
        """Send larger messages in parts of this many bytes."""
        self._link.fit(chunk_bytes)

    def decode(self, payload: bytes) -> AnyMessage:
        """Decode a message; one that is invalid is refused to the server and raises `PeerError`."""
        try:
            return decode_message(payload, federation=self._federation)
        except PeerError as error:
            self.refuse(error)
            raise

    def refuse(self, error: PeerError) -> None:
        """Tell the server why a message of its was refused."""
        self.publish(Channel.UP, Refusal.of(error, self._federation, self._device))

    def _topic(self, channel: Channel) -> str:
        return str(DeviceTopic(self._federation, self._device, channel))


ASK_AFTER_S, ASK_EVERY_S, ASK_AT_REST_S = 3.0, 10.0, 60.0
SAY_AFTER_S = 10.0
AGAIN_AFTER_S = (5.0, 15.0)  # A rejected birth is repeated after a random number of seconds in this range


@dataclass(frozen=True)
class Ask:
    """Command: request a blob that does not exist."""


@dataclass(frozen=True)
class RepeatBirth:
    """Command: publish the birth again."""


@dataclass(frozen=True)
class WarnNoAnswer:
    """Command: warn the user that no server has answered for this many seconds."""

    seconds: float


Command = Ask | RepeatBirth | WarnNoAnswer


@dataclass(frozen=True)
class ServerContact:
    """When the connection came up (`since`) and when each action is due, in seconds."""

    since: float = 0.0
    ask_at: float = math.inf
    say_at: float = math.inf
    birth_at: float = math.inf

    @property
    def at_rest(self) -> bool:
        """Whether there is nothing to warn of."""
        return math.isinf(self.say_at)


def on_connected(now: float) -> ServerContact:
    return ServerContact(now, ask_at=now + ASK_AFTER_S, say_at=now + SAY_AFTER_S)


def on_answer(contact: ServerContact) -> ServerContact:
    if math.isinf(contact.ask_at) and math.isinf(contact.say_at):
        return contact
    return replace(contact, ask_at=math.inf, say_at=math.inf)


def run_over(contact: ServerContact) -> ServerContact:
    """No run is going on, and nobody need serve the next one yet: questions go on, warnings do not."""
    return replace(contact, say_at=math.inf)


def on_rejection(contact: ServerContact, now: float, chance: float) -> ServerContact:
    """A server has rejected the birth; `chance`, from 0 to 1, picks the time of the next."""
    first, last = AGAIN_AFTER_S
    return replace(contact, birth_at=now + first + chance * (last - first))


def tick(contact: ServerContact, now: float) -> tuple[ServerContact, list[Command]]:
    """Return what is due: requests, and ever rarer warnings, until a server answers."""
    commands: list[Command] = []
    if now >= contact.birth_at:
        contact, commands = replace(contact, birth_at=math.inf), [RepeatBirth()]
    if now >= contact.ask_at:
        contact = replace(contact, ask_at=now + (ASK_AT_REST_S if contact.at_rest else ASK_EVERY_S))
        commands.append(Ask())
    if now >= contact.say_at:
        silent = now - contact.since
        contact = replace(contact, say_at=contact.since + 6 * silent)
        commands.append(WarnNoAnswer(silent))
    return contact, commands
