"""The topic tree, `fed/v1/{federation}/...`, as values.

    all/state                       retained announcement, server to every device
    layers/{n}                      chunk frames, server to every device that needs them (QoS 0)
    devices/{device}/up/birth       retained birth, or death by last will
    devices/{device}/up/control     JSON, device to server        (down/control: server to device)
    devices/{device}/up/blob        chunk frames, device to server (down/blob: server to device)
    devices/{device}/up/rollout     JSON, device to whoever rolls a model out (down/rollout: to the device)
    devices/{device}/predict/request  what `edge-client serve` is asked (predict/answer: what it says)
    server/echo                     what the server says to itself (rollout/echo: what a rollout does)
    devices/{device}/echo           what a device's `doctor` says to itself
    enrol/{who}/request             JSON, to the authority: a certificate, please (enrol/{who}/answer)

A device reads `all/#` and its own `down/#` and writes its own `up/#`; of `layers/` it reads what its task
names, while it fetches that. No two filters of one client overlap. `who` is the device, for its next
certificate, or the id of an enrolment code, for its first.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Literal

from schemas.errors import PeerError
from schemas.names import is_name

ROOT = "fed/v1"
MAX_SHARED_TOPIC = 99_999
MAX_KNOWN_TOPICS = 16_384
"""So many are read once and not with every message: three of each of five thousand devices."""
CODE_ID_PATTERN = r"^~[0-9a-f]{16}$"
"""The id of an enrolment code: never a device's name, which cannot begin so."""
_CODE_ID = re.compile(CODE_ID_PATTERN.replace("$", r"\Z"))
_NUMBER = re.compile(r"(0|[1-9][0-9]{0,4})\Z")


class Channel(StrEnum):
    """What a device's topic carries, and in which direction."""

    BIRTH = "up/birth"
    UP = "up/control"
    UP_BLOB = "up/blob"
    DOWN = "down/control"
    DOWN_BLOB = "down/blob"
    UP_ROLLOUT = "up/rollout"
    DOWN_ROLLOUT = "down/rollout"


@dataclass(frozen=True)
class DeviceTopic:
    """A topic of one device."""

    federation: str
    device: str
    channel: Channel

    def __str__(self) -> str:
        return f"{ROOT}/{self.federation}/devices/{self.device}/{self.channel}"


@dataclass(frozen=True)
class PredictTopic:
    """Where a device's `edge-client serve` is asked, and where it answers; nobody in a federation reads it.

    On a broker with certificates the server may ask. A service beside its device's agent has a name and a
    certificate of its own: two connections with one certificate throw each other off.
    """

    federation: str
    device: str
    part: Literal["request", "answer"]

    def __str__(self) -> str:
        return f"{ROOT}/{self.federation}/devices/{self.device}/predict/{self.part}"


@dataclass(frozen=True)
class StateTopic:
    """The retained announcement of a federation."""

    federation: str

    def __str__(self) -> str:
        return f"{ROOT}/{self.federation}/all/state"


@dataclass(frozen=True)
class SharedTopic:
    """Where blobs that several devices need are published once; which, a task says."""

    federation: str
    number: int

    def __str__(self) -> str:
        return f"{ROOT}/{self.federation}/layers/{self.number}"


@dataclass(frozen=True)
class EnrolTopic:
    """Where a certificate is asked for, by a device or with an enrolment code, and where the answer comes."""

    federation: str
    who: str
    part: Literal["request", "answer"]

    def __str__(self) -> str:
        return f"{enrolment_root(self.federation)}{self.within}"

    @property
    def within(self) -> str:
        """The topic as it is called behind the broker's enrolment listener, which adds the rest."""
        return f"{self.who}/{self.part}"


def echo_topic(federation: str, who: Literal["server", "rollout"]) -> str:
    """Where this program publishes to itself, to see which sizes of messages come back."""
    return f"{ROOT}/{federation}/{who}/echo"


def enrolment_root(federation: str) -> str:
    """The prefix that the broker's enrolment listener puts before all topics."""
    return f"{ROOT}/{federation}/enrol/"


def authority_filters(federation: str) -> tuple[str, ...]:
    """What the authority, which answers requests for certificates, subscribes to."""
    return (f"{enrolment_root(federation)}+/request",)


def is_code_id(text: str) -> bool:
    """Whether `text` is the id of an enrolment code."""
    return _CODE_ID.match(text) is not None


def device_filters(federation: str, device: str) -> tuple[str, ...]:
    """What a device subscribes to."""
    return (f"{ROOT}/{federation}/all/#", f"{ROOT}/{federation}/devices/{device}/down/#")


def server_filters(federation: str, *, blobs: bool = True) -> tuple[str, ...]:
    """What the server subscribes to; without `blobs`, which its receivers take, all but those."""
    if blobs:
        return (f"{ROOT}/{federation}/devices/+/up/#",)
    return tuple(f"{ROOT}/{federation}/devices/+/{channel}" for channel in (Channel.BIRTH, Channel.UP))


def rollout_filters(federation: str) -> tuple[str, ...]:
    """What a rollout subscribes to: who is there, and what they say of the model that they were offered."""
    return tuple(
        f"{ROOT}/{federation}/devices/+/{channel}" for channel in (Channel.BIRTH, Channel.UP_ROLLOUT)
    )


def receiver_filters(federation: str, group: str) -> tuple[str, ...]:
    """What the server's receivers share: each message goes to one of them.

    Where access rules only keep messages from whoever may not read them, as Mosquitto's, a stranger in the
    `group` would let its share of them vanish: its name must be known to nobody else.
    """
    return (f"$share/{group}/{ROOT}/{federation}/devices/+/{Channel.UP_BLOB}",)


@lru_cache(maxsize=MAX_KNOWN_TOPICS)
def parse_topic(topic: str) -> DeviceTopic | StateTopic | SharedTopic | EnrolTopic:
    """Read a topic; raises `PeerError` when it is none of this protocol."""
    parts = topic.split("/")
    if parts[:2] == ROOT.split("/") and len(parts) > 3 and is_name(parts[2]):
        federation, rest = parts[2], parts[3:]
        if rest == ["all", "state"]:
            return StateTopic(federation)
        if rest[0] == "layers" and len(rest) == 2 and _NUMBER.match(rest[1]):
            return SharedTopic(federation, int(rest[1]))
        if rest[0] == "enrol" and len(rest) == 3 and (is_name(rest[1]) or is_code_id(rest[1])):
            if rest[2] == "request":
                return EnrolTopic(federation, rest[1], "request")
            if rest[2] == "answer":
                return EnrolTopic(federation, rest[1], "answer")
        if (
            rest[0] == "devices"
            and len(rest) == 4
            and is_name(rest[1])
            and "/".join(rest[2:]) in set(Channel)
        ):
            return DeviceTopic(federation, rest[1], Channel("/".join(rest[2:])))
    raise PeerError(f"not a topic of this protocol: {topic[:120]!r}")
