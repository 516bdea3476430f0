"""The topic tree, `fed/v1/{federation}/...`, as values.

    all/state                         retained announcement, server to all devices
    layers/{n}                        chunk frames, server to all devices that need them (QoS 0)
    devices/{device}/up/birth         retained birth, or death by last will
    devices/{device}/up/control       JSON, device to server (down/control: server to device)
    devices/{device}/up/blob          chunk frames, device to server (down/blob: server to device)
    devices/{device}/up/rollout       JSON, device to rollout service (down/rollout: back)
    devices/{device}/up/fleet         JSON, device to the fleet service or an operator (down/fleet: back)
    devices/{device}/predict/request  requests to `edge-client serve` (predict/answer: its answers)
    sites/{site}/up/birth             retained birth of a gateway, or its death by last will
    sites/{site}/up/control           JSON, gateway to server (down/control: server to gateway)
    sites/{site}/up/blob              chunk frames, gateway to server
    sites/{site}/up/devices/{device}/...    as `devices/{device}/up/...`, by the gateway, but for rollout
    sites/{site}/down/devices/{device}/...  as `devices/{device}/down/...`, to the gateway, but for rollout
    server/echo                       the server to itself (rollout/, fleet/, operator/, updates/echo: others)
    server/lease                      retained: which server holds the federation
    server/standby/report             JSON, standby to server (server/standby/entry: back)
    server/standby/chunk              chunk frames, server to standby
    devices/{device}/echo             a device's `doctor` to itself
    enrol/{who}/request               JSON, certificate requests to the authority (enrol/{who}/answer)

A device subscribes to `all/#`, to its own `down/#` and, while it fetches, to the `layers/` that its task
names; it publishes to its own `up/#`. No two filters of one client overlap. `who` is a device that renews its
certificate, or the id of an enrolment code.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Literal

from schemas.base import is_name
from schemas.errors import PeerError

ROOT = "fed/v1"
MAX_SHARED_TOPIC = 99_999
MAX_KNOWN_TOPICS = 16_384  # topics whose parsed form is cached: three for each of 5,000 devices
CODE_ID_PATTERN = r"^~[0-9a-f]{16}$"  # the tilde keeps an enrolment code's id apart from device names
_CODE_ID = re.compile(CODE_ID_PATTERN.replace("$", r"\Z"))
_NUMBER = re.compile(r"(0|[1-9][0-9]{0,4})\Z")


class Channel(StrEnum):
    """The part of a device topic that names content and direction."""

    BIRTH = "up/birth"
    UP = "up/control"
    UP_BLOB = "up/blob"
    DOWN = "down/control"
    DOWN_BLOB = "down/blob"
    UP_ROLLOUT = "up/rollout"
    DOWN_ROLLOUT = "down/rollout"
    UP_FLEET = "up/fleet"
    DOWN_FLEET = "down/fleet"


_CHANNELS = frozenset(Channel)
SITE_CHANNELS = _CHANNELS - {Channel.UP_ROLLOUT, Channel.DOWN_ROLLOUT}  # that a gateway passes on


@dataclass(frozen=True)
class DeviceTopic:
    """A topic of one device."""

    federation: str
    device: str
    channel: Channel

    def __str__(self) -> str:
        return f"{ROOT}/{self.federation}/devices/{self.device}/{self.channel}"


@dataclass(frozen=True)
class SiteTopic:
    """A topic of a site's gateway: about the site itself, or about one of its devices."""

    federation: str
    site: str
    channel: Channel
    device: str = ""

    def __str__(self) -> str:
        way, _, part = self.channel.partition("/")
        device = f"devices/{self.device}/" if self.device else ""
        return f"{ROOT}/{self.federation}/sites/{self.site}/{way}/{device}{part}"


def device_topic(federation: str, device: str, channel: Channel, site: str) -> DeviceTopic | SiteTopic:
    """The topic of a device, or of a device behind the gateway of `site`, if that is not empty."""
    return SiteTopic(federation, site, channel, device) if site else DeviceTopic(federation, device, channel)


@dataclass(frozen=True)
class PredictTopic:
    """Requests to a device's `edge-client serve` and its answers; the federation itself does not use them.

    On a broker with certificates the server may publish requests. The service needs another name and
    certificate than its device's agent: a broker drops the older of two connections with one certificate.
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
    """A topic on which blobs for several devices are published once; tasks name its number."""

    federation: str
    number: int

    def __str__(self) -> str:
        return f"{ROOT}/{self.federation}/layers/{self.number}"


@dataclass(frozen=True)
class EnrolTopic:
    """Certificate requests, by a device or with an enrolment code, and the answers to them."""

    federation: str
    who: str
    part: Literal["request", "answer"]

    def __str__(self) -> str:
        return f"{enrolment_root(self.federation)}{self.within}"

    @property
    def within(self) -> str:
        """The topic as clients of the broker's enrolment listener see it; the listener adds the prefix."""
        return f"{self.who}/{self.part}"


Role = Literal["server", "rollout", "fleet", "operator", "updates"]
"""The programs on the server's side that have a connection and an echo topic of their own."""


def echo_topic(federation: str, who: Role) -> str:
    """The topic on which a program publishes to itself, to test which message sizes the broker accepts."""
    return f"{ROOT}/{federation}/{who}/echo"


def lease_topic(federation: str) -> str:
    """The topic of the retained lease, between servers."""
    return f"{ROOT}/{federation}/server/lease"


def standby_topic(federation: str, part: Literal["report", "entry", "chunk"]) -> str:
    """Between a server and its standby: the standby's reports and requests, entries for it, chunks for it."""
    return f"{ROOT}/{federation}/server/standby/{part}"


def enrolment_root(federation: str) -> str:
    """The prefix that the broker's enrolment listener adds to all topics."""
    return f"{ROOT}/{federation}/enrol/"


def authority_filters(federation: str) -> tuple[str, ...]:
    """Subscriptions of the authority that issues certificates."""
    return (f"{enrolment_root(federation)}+/request",)


def is_code_id(text: str) -> bool:
    return _CODE_ID.match(text) is not None


def device_filters(federation: str, device: str) -> tuple[str, ...]:
    """Permanent subscriptions of a device."""
    return (f"{ROOT}/{federation}/all/#", f"{ROOT}/{federation}/devices/{device}/down/#")


def server_filters(federation: str, *, blobs: bool = True) -> tuple[str, ...]:
    """Subscriptions of the server; without `blobs` if receivers take them."""
    if blobs:
        return (f"{ROOT}/{federation}/devices/+/up/#",)
    return _of_all_devices(federation, Channel.BIRTH, Channel.UP)


def site_filters(federation: str) -> tuple[str, ...]:
    """Subscriptions of a server, or of a gateway, to the sites below it."""
    return (f"{ROOT}/{federation}/sites/+/up/#",)


def stray_gateway_filters(federation: str) -> tuple[str, ...]:
    """Subscriptions of a server without sites: a gateway that connects all the same is refused."""
    return (f"{ROOT}/{federation}/sites/+/up/birth",)


def gateway_filters(federation: str, site: str) -> tuple[str, ...]:
    """Permanent subscriptions of a gateway to what is above it."""
    return (f"{ROOT}/{federation}/all/#", f"{ROOT}/{federation}/sites/{site}/down/#")


def rollout_filters(federation: str) -> tuple[str, ...]:
    """Subscriptions of a rollout: births, and reports on the offered model."""
    return _of_all_devices(federation, Channel.BIRTH, Channel.UP_ROLLOUT)


def fleet_filters(federation: str) -> tuple[str, ...]:
    """Subscriptions of the fleet service: presence, telemetry and answers, also of sites' devices."""
    return _of_all_devices(federation, Channel.BIRTH, Channel.UP, Channel.UP_FLEET, sites=True)


def operator_filters(federation: str) -> tuple[str, ...]:
    """Subscriptions of an operator's command: births and answers of devices, and of sites' devices."""
    return _of_all_devices(federation, Channel.BIRTH, Channel.UP_FLEET, sites=True)


def _of_all_devices(federation: str, *channels: Channel, sites: bool = False) -> tuple[str, ...]:
    """Subscriptions to what devices say, and what gateways pass on of the `sites`' devices."""
    own = (f"devices/+/{channel}" for channel in channels)
    passed_on = (f"sites/+/up/devices/+/{channel.partition('/')[2]}" for channel in channels if sites)
    return tuple(f"{ROOT}/{federation}/{topic}" for topic in (*own, *passed_on))


def receiver_filters(federation: str, group: str) -> tuple[str, ...]:
    """The shared subscription of the server's receivers: each message goes to one of them.

    The name of the `group` must be secret: Mosquitto's access rules let any client subscribe, so a foreign
    client in the group would be handed, and lose, its share of the messages.
    """
    return (f"$share/{group}/{ROOT}/{federation}/devices/+/{Channel.UP_BLOB}",)


@lru_cache(maxsize=MAX_KNOWN_TOPICS)
def parse_topic(topic: str) -> DeviceTopic | SiteTopic | StateTopic | SharedTopic | EnrolTopic:
    """Parse a topic; raises `PeerError` if it is not one of this protocol."""
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
        if rest[0] == "devices" and len(rest) == 4 and is_name(rest[1]) and "/".join(rest[2:]) in _CHANNELS:
            return DeviceTopic(federation, rest[1], Channel("/".join(rest[2:])))
        if rest[0] == "sites" and len(rest) in (4, 6) and is_name(rest[1]):
            return _site_topic(topic, federation, *rest[1:])
    raise PeerError(f"not a topic of this protocol: {topic[:120]!r}")


def _site_topic(topic: str, federation: str, site: str, way: str, *rest: str) -> SiteTopic:
    channel = f"{way}/{rest[-1]}"
    if channel in SITE_CHANNELS and len(rest) == 1:
        return SiteTopic(federation, site, Channel(channel))
    if channel in SITE_CHANNELS and rest[0] == "devices" and is_name(rest[1]):
        return SiteTopic(federation, site, Channel(channel), rest[1])
    raise PeerError(f"not a topic of this protocol: {topic[:120]!r}")
