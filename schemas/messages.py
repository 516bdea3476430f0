"""Every control message of the protocol, and the one way in and out of bytes.

Messages are JSON objects with a `kind`; tensors never travel in them, only blob references. A device
speaks of itself (`Birth`, `Death`, `TaskReply`, `Update`, `Delivery`, `Telemetry`), the server speaks to
one device (`Task`, `Acknowledgement`, `Refusal`) or to all (`RoundAnnouncement`, `FederationEnd`), and
whoever wants a blob, on either side, sends a `BlobRequest`. While blobs are published once for several
devices these say what they have `Heard`, and are told of the `BroadcastEnd`. Six more agree on the masks of
a round and undo them, in this order: `KeyAdvertisement`, `MaskCohort`, `KeyShares`, `EntrustedShares`,
`UnmaskRequest`, `UnmaskAnswer`.
A device asks the authority for a certificate with a `CertificateRequest`, and gets an `IssuedCertificate`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Annotated, ClassVar, Literal

from pydantic import Field, TypeAdapter, ValidationError, model_validator

from schemas.blobs import BlobRef
from schemas.errors import PeerError
from schemas.frozen import Frozen
from schemas.manifest import SignedManifest
from schemas.names import Digest, Name
from schemas.secure import MAX_COHORT, Key, MaskingTerms, Member, Sealed, Share
from schemas.strategy import Piece, TrainingPlan
from schemas.submodel import SubModelSpec
from schemas.topics import MAX_LAYER_TOPIC
from schemas.values import (
    Attempt,
    CapabilityProfile,
    DataCard,
    DeliveryMetrics,
    Loss,
    ModelSpec,
    Pem,
    PersonalPruning,
    Preprocessing,
    Reason,
    RoundNumber,
    Seconds,
    Tally,
    Text,
    TrainingMetrics,
)

PROTOCOL = 1
"""The version that this program speaks; a message states the one it was written in."""
PROTOCOL_RANGE = (1, 1)
MAX_MESSAGE_BYTES = 256 * 1024
"""Of the largest kinds, which may list a channel by channel choice; others stay below 4 kB."""


class Message(Frozen):
    """Base of all messages."""

    kind: str
    protocol: int = PROTOCOL
    federation: Name
    max_bytes: ClassVar[int] = 4 * 1024


class Birth(Message):
    """Retained: the device is there. A higher `session` replaces a lower one."""

    kind: Literal["birth"] = "birth"
    device: Name
    session: int = Field(ge=0)
    profile: CapabilityProfile = CapabilityProfile()
    data: DataCard


class Death(Message):
    """Last will, retained over the birth: the device of that `session` is gone."""

    kind: Literal["death"] = "death"
    device: Name
    session: int = Field(ge=0)


class Layer(Frozen):
    """One part of the state that a task starts from, as the blob of that name."""

    blob: Text


class Task(Message):
    """One device's work in one round. `blobs` names what it must hold: `channel-map` and those of `layers`.

    The layers, smallest sub-model first, add up to the state; without any, `state` is all of it. `channels`
    says of some blobs on which shared topic they are published; all others are the device's to ask for.
    `train` answers with an `Update`, `deliver` (the compact model for good) with a `Delivery`. Where
    `returned` is there, the update holds the parameters of those layers only; where `masking` is, it is sent
    masked, in the group `masked`. `uplink` are the codecs that make it small. `manifest` is the server's
    signature over all of it and the device that it is for.
    """

    kind: Literal["task"] = "task"
    run: Name
    round: RoundNumber
    attempt: Attempt
    action: Literal["train", "deliver"] = "train"
    tier: int = Field(ge=1)
    ratio: float = Field(ge=0, lt=1)
    model: ModelSpec
    preprocessing: Preprocessing = Preprocessing()
    spec: SubModelSpec = SubModelSpec()
    personal: PersonalPruning | None = None
    returned: tuple[Text, ...] | None = None
    masking: MaskingTerms | None = None
    uplink: tuple[Piece, ...] = ()
    training: TrainingPlan | None = None
    blobs: Mapping[str, BlobRef]
    layers: tuple[Layer, ...] = ()
    channels: Mapping[str, Annotated[int, Field(ge=0, le=MAX_LAYER_TOPIC)]] = {}
    deadline_s: Seconds | None = None
    provenance: Mapping[str, Text] = {}
    manifest: SignedManifest | None = None
    max_bytes: ClassVar[int] = MAX_MESSAGE_BYTES

    @model_validator(mode="after")
    def _blobs_are_named(self) -> Task:
        named = {*self.channels, *(layer.blob for layer in self.layers)}
        if strangers := sorted(named - self.blobs.keys()):
            raise ValueError(f"there is no blob {strangers[0]!r}")
        return self

    def pushed(self) -> tuple[BlobRef, ...]:
        """The blobs that are sent along unasked: small ones that no other device needs."""
        own = [layer.blob for layer in self.layers] or [*self.blobs]
        return tuple(self.blobs[n] for n in own if self.blobs[n].inline and n not in self.channels)


class TaskReply(Message):
    """Accept or decline a task; a task that fails later is declined too, with the reason.

    `listens`: the shared topics on which the device, from now on, hears what it lacks.
    """

    kind: Literal["task-reply"] = "task-reply"
    device: Name
    run: Name
    round: RoundNumber
    attempt: Attempt
    accepted: bool
    reason: Reason | None = None
    detail: Text = ""
    listens: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(max_length=256)] = ()


class Update(Message):
    """The result of a training task: groups in the coordinates of `spec`, as a blob to be fetched."""

    kind: Literal["update"] = "update"
    device: Name
    run: Name
    round: RoundNumber
    attempt: Attempt
    blob: BlobRef
    spec: SubModelSpec = SubModelSpec()
    metrics: TrainingMetrics
    max_bytes: ClassVar[int] = MAX_MESSAGE_BYTES


class Delivery(Message):
    """The result of a delivery task: the compact model is exported, checked and in place."""

    kind: Literal["delivery"] = "delivery"
    device: Name
    run: Name
    round: RoundNumber
    attempt: Attempt
    metrics: DeliveryMetrics


class BlobRequest(Message):
    """Send me up to `count` chunks of this blob, from chunk `first` on. The receiver pulls."""

    kind: Literal["blob-request"] = "blob-request"
    device: Name
    digest: Digest
    first: int = Field(ge=0)
    count: int = Field(ge=1, le=64)


class Heard(Message):
    """The device has heard a shared topic up to chunk `index` of this blob; said every few megabytes."""

    kind: Literal["heard"] = "heard"
    device: Name
    run: Name
    attempt: Attempt
    digest: Digest
    index: int = Field(ge=0)


class BroadcastEnd(Message):
    """To a device: nothing more of these blobs comes on a shared topic for it; it asks for what it lacks."""

    kind: Literal["broadcast-end"] = "broadcast-end"
    device: Name
    run: Name
    attempt: Attempt
    digests: Annotated[tuple[Digest, ...], Field(max_length=256)]
    max_bytes: ClassVar[int] = 20 * 1024


class Acknowledgement(Message):
    """The server holds the result of this task for good; `digest` is that of the update's blob.

    `manifest` is the server's signature for the model that a delivery has reported.
    """

    kind: Literal["acknowledgement"] = "acknowledgement"
    device: Name
    run: Name
    attempt: Attempt
    digest: Digest | None = None
    manifest: SignedManifest | None = None


class Refusal(Message):
    """The server, or a device, will not take what it was sent, and why.

    `run` and `attempt` name the task whose result is refused, `digest` the blob that is meant.
    """

    kind: Literal["refusal"] = "refusal"
    device: Name
    run: Name | None = None
    attempt: Attempt | None = None
    digest: Digest | None = None
    reason: Reason
    detail: Text = ""


class Telemetry(Message):
    """Where a device is in its work; lost ones are not missed."""

    kind: Literal["telemetry"] = "telemetry"
    device: Name
    session: int = Field(ge=0)
    phase: Literal["idle", "fetching", "training", "uploading", "exporting"]
    round: RoundNumber | None = None
    epoch: Tally | None = None
    epochs: Tally | None = None
    loss: Loss | None = None


class RoundAnnouncement(Message):
    """Retained, to all: which round of which run is under way.

    Tasks of rounds before `oldest` are no longer wanted; unless stated, only those of `round` are.
    """

    kind: Literal["round-announcement"] = "round-announcement"
    run: Name
    round: RoundNumber
    rounds: RoundNumber
    phase: Literal["waiting", "training", "aggregating", "delivering"]
    selected: int = Field(ge=0)
    oldest: RoundNumber = Field(default_factory=lambda announced: announced["round"])

    @model_validator(mode="after")
    def _oldest_has_begun(self) -> RoundAnnouncement:
        if self.oldest > self.round:
            raise ValueError(f"oldest {self.oldest} is after round {self.round}")
        return self


class FederationEnd(Message):
    """Retained, to all: that run is over."""

    kind: Literal["federation-end"] = "federation-end"
    run: Name
    outcome: Literal["finished", "failed", "interrupted"]
    rounds: RoundNumber


class CertificateRequest(Message):
    """A device asks the authority for a certificate of its key; `csr` is PEM (PKCS #10).

    With an enrolment code `proof` shows that the device holds it (`schemas.enrolment`); for the next
    certificate the device's own topic, which the broker keeps for it alone, is proof enough.
    """

    kind: Literal["certificate-request"] = "certificate-request"
    device: Name
    csr: Pem
    proof: Digest | None = None


class IssuedCertificate(Message):
    """The authority's answer: the certificate, PEM, and that of the authority which devices trust.

    `proof` answers a request's: whoever does not know the code cannot have made this.
    """

    kind: Literal["issued-certificate"] = "issued-certificate"
    device: Name
    certificate: Pem
    authority: Pem
    proof: Digest | None = None
    max_bytes: ClassVar[int] = 10 * 1024


class KeyAdvertisement(Message):
    """A device would mask its update of this task: its public keys, made for this attempt alone."""

    kind: Literal["key-advertisement"] = "key-advertisement"
    device: Name
    run: Name
    round: RoundNumber
    attempt: Attempt
    mask_key: Key
    share_key: Key


class MaskCohort(Message):
    """To a device that has advertised: with whom it agrees on masks. Every member gets the same list."""

    kind: Literal["mask-cohort"] = "mask-cohort"
    device: Name
    run: Name
    round: RoundNumber
    attempt: Attempt
    members: Annotated[tuple[Member, ...], Field(min_length=1, max_length=MAX_COHORT)]
    max_bytes: ClassVar[int] = MAX_MESSAGE_BYTES


class KeyShares(Message):
    """A device's shares of its secrets, one sealed parcel per other member; the server cannot open any."""

    kind: Literal["key-shares"] = "key-shares"
    device: Name
    run: Name
    round: RoundNumber
    attempt: Attempt
    shares: Annotated[Mapping[Name, Sealed], Field(max_length=MAX_COHORT)]
    max_bytes: ClassVar[int] = MAX_MESSAGE_BYTES


class EntrustedShares(Message):
    """To a member: the parcels for it, by sender. Who sent none is out: nobody masks with it."""

    kind: Literal["entrusted-shares"] = "entrusted-shares"
    device: Name
    run: Name
    round: RoundNumber
    attempt: Attempt
    shares: Annotated[Mapping[Name, Sealed], Field(max_length=MAX_COHORT)]
    max_bytes: ClassVar[int] = MAX_MESSAGE_BYTES


class UnmaskRequest(Message):
    """To a member whose update counts: of whom the server has a masked update, that member included."""

    kind: Literal["unmask-request"] = "unmask-request"
    device: Name
    run: Name
    round: RoundNumber
    attempt: Attempt
    survivors: Annotated[tuple[Name, ...], Field(min_length=1, max_length=MAX_COHORT)]
    max_bytes: ClassVar[int] = MAX_MESSAGE_BYTES


class UnmaskAnswer(Message):
    """What lets the sum be unmasked: of each member either its seeds' shares or its key's, never both.

    `seeds`: of each survivor, one share per segment that is to be revealed, in order; `keys`: of the others.
    """

    kind: Literal["unmask-answer"] = "unmask-answer"
    device: Name
    run: Name
    round: RoundNumber
    attempt: Attempt
    seeds: Annotated[Mapping[Name, tuple[Share, ...]], Field(max_length=MAX_COHORT)]
    keys: Annotated[Mapping[Name, Share], Field(max_length=MAX_COHORT)] = {}
    max_bytes: ClassVar[int] = MAX_MESSAGE_BYTES


FromDevice = (
    Birth
    | Death
    | TaskReply
    | Update
    | Delivery
    | BlobRequest
    | Heard
    | Refusal
    | Telemetry
    | KeyAdvertisement
    | KeyShares
    | UnmaskAnswer
)
FromServer = (
    Task
    | BlobRequest
    | BroadcastEnd
    | Acknowledgement
    | Refusal
    | RoundAnnouncement
    | FederationEnd
    | MaskCohort
    | EntrustedShares
    | UnmaskRequest
)
OfIdentity = CertificateRequest | IssuedCertificate
"""Between a device and the authority, on topics of their own."""
AnyMessage = FromDevice | FromServer | OfIdentity

MESSAGES: dict[str, type[Message]] = {
    "birth": Birth,
    "death": Death,
    "task": Task,
    "task-reply": TaskReply,
    "update": Update,
    "delivery": Delivery,
    "blob-request": BlobRequest,
    "heard": Heard,
    "broadcast-end": BroadcastEnd,
    "acknowledgement": Acknowledgement,
    "refusal": Refusal,
    "telemetry": Telemetry,
    "round-announcement": RoundAnnouncement,
    "federation-end": FederationEnd,
    "certificate-request": CertificateRequest,
    "issued-certificate": IssuedCertificate,
    "key-advertisement": KeyAdvertisement,
    "mask-cohort": MaskCohort,
    "key-shares": KeyShares,
    "entrusted-shares": EntrustedShares,
    "unmask-request": UnmaskRequest,
    "unmask-answer": UnmaskAnswer,
}


@cache
def _adapter() -> TypeAdapter[AnyMessage]:
    """Made for the first message, not at import: it takes as long as much of the rest of the import."""
    return TypeAdapter(Annotated[AnyMessage, Field(discriminator="kind")])


def encode_message(message: Message) -> bytes:
    """Encode a message as JSON; raises `PeerError` when it is larger than its kind may be."""
    payload = message.model_dump_json().encode()
    if len(payload) > message.max_bytes:
        raise PeerError(
            f"{message.kind} of {len(payload)} bytes exceeds {message.max_bytes}", reason=Reason.OVERSIZED
        )
    return payload


def decode_message(payload: bytes, *, federation: str | None = None) -> AnyMessage:
    """Decode a message; raises `PeerError` with its reason for whatever is not exactly one."""
    if len(payload) > MAX_MESSAGE_BYTES:
        raise PeerError(
            f"message of {len(payload)} bytes exceeds {MAX_MESSAGE_BYTES}", reason=Reason.OVERSIZED
        )
    head = _head(payload)
    model = MESSAGES.get(str(head.get("kind")))
    if model is None:
        raise PeerError(f"unknown kind of message {str(head.get('kind'))[:40]!r}", reason=Reason.UNKNOWN_KIND)
    if len(payload) > model.max_bytes:
        raise _oversized(str(head["kind"]), len(payload), model.max_bytes)
    low, high = PROTOCOL_RANGE
    version = head.get("protocol", PROTOCOL)
    if not isinstance(version, int) or not low <= version <= high:
        raise PeerError(
            f"protocol {version!r} is not within {low}..{high}", reason=Reason.UNSUPPORTED_PROTOCOL
        )
    try:
        message = _adapter().validate_json(payload)
    except ValidationError as error:
        raise PeerError(f"malformed {head['kind']}: {_first_problem(error)}") from error
    if federation is not None and message.federation != federation:
        raise PeerError(
            f"{message.kind} for federation {message.federation!r}, this is {federation!r}",
            reason=Reason.WRONG_FEDERATION,
        )
    return message


def _oversized(what: str, size: int, limit: int) -> PeerError:
    return PeerError(f"{what} of {size} bytes exceeds {limit}", reason=Reason.OVERSIZED)


def _head(payload: bytes) -> dict[str, object]:
    try:
        value = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise PeerError(f"not JSON: {str(error)[:80]}") from error
    if not isinstance(value, dict):
        raise PeerError("not a JSON object")
    return value


def _first_problem(error: ValidationError) -> str:
    problem = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in problem["loc"]) or "message"
    return f"{where}: {problem['msg']}"
