"""Every control message of the protocol, and the functions that encode and decode them.

Messages are JSON objects with a `kind`. They contain references to blobs, never tensors.
"""

import json
from typing import cast, get_args

from pydantic import ValidationError

from schemas.errors import PeerError, Reason
from schemas.messages.blobs import BlobRequest, BroadcastEnd, BroadcastProgress
from schemas.messages.client_update import ClientOffer, ClientReport, ClientWithdrawal
from schemas.messages.message import MAX_MESSAGE_BYTES, PROTOCOL, PROTOCOL_RANGE, Message
from schemas.messages.presence import Birth, CertificateRequest, Death, IssuedCertificate, Telemetry
from schemas.messages.remote import DiagnosticPart, DiagnosticReceipt, DiagnosticRefusal, DiagnosticRequest
from schemas.messages.results import Acknowledgement, Delivery, Refusal, SiteReceipt, TaskReply, Update
from schemas.messages.rollout import ModelOffer, ModelReport, ModelWithdrawal
from schemas.messages.secure_aggregation import (
    EntrustedShares,
    KeyAdvertisement,
    KeyShares,
    MaskCohort,
    UnmaskAnswer,
    UnmaskRequest,
)
from schemas.messages.servers import (
    FederationEnd,
    Lease,
    LeaseHolder,
    RoundAnnouncement,
    StandbyEntry,
    StandbyRefusal,
    StandbyReport,
)
from schemas.messages.sites import SiteBirth, SiteDeath, SiteSum, SiteTerms, SumMember, SumRequest
from schemas.messages.tasks import DeliverTask, Increment, Task, TaskBase, TrainTask, decode_task, task_class

FromDevice = (
    Birth
    | Death
    | TaskReply
    | Update
    | Delivery
    | BlobRequest
    | BroadcastProgress
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
IdentityMessage = CertificateRequest | IssuedCertificate
"""Between a device and the certificate authority, on their own topics."""
RolloutMessage = ModelOffer | ModelWithdrawal | ModelReport
"""Between a device and a rollout service, on their own topics, as are its blob requests."""
DiagnosticMessage = DiagnosticRequest | DiagnosticReceipt | DiagnosticPart | DiagnosticRefusal
"""Between a device and an operator, on the `fleet` topics."""
ClientMessage = ClientOffer | ClientWithdrawal | ClientReport
"""Between a device and the rollout of a client release, on the `fleet` topics, as are its blob requests."""
ServerMessage = Lease | StandbyReport | StandbyEntry | StandbyRefusal  # between the servers of one federation
FromSite = SiteBirth | SiteDeath | SiteSum | BlobRequest | Refusal
"""From the gateway of a site, about the site itself; what its devices say comes on topics of their own."""
ToSite = SiteTerms | SumRequest | BlobRequest | Refusal
SiteMessage = SiteBirth | SiteDeath | SiteTerms | SumRequest | SiteSum
AnyMessage = (
    FromDevice
    | FromServer
    | IdentityMessage
    | RolloutMessage
    | DiagnosticMessage
    | ClientMessage
    | ServerMessage
    | SiteMessage
)

MESSAGES: dict[str, type[Message]] = {
    **{message.model_fields["kind"].default: message for message in get_args(AnyMessage)},
    "task": TaskBase,
}


def encode_message(message: Message) -> bytes:
    """Encode a message as JSON; raises `PeerError` if it is larger than its kind allows."""
    payload = message.model_dump_json().encode()
    if len(payload) > message.max_bytes:
        raise _make_oversized_error(message.kind, len(payload), message.max_bytes)
    return payload


def decode_message(payload: bytes, *, federation: str | None = None) -> AnyMessage:
    """Decode a message; raises `PeerError` with a reason if it is not valid."""
    if len(payload) > MAX_MESSAGE_BYTES:
        raise _make_oversized_error("message", len(payload), MAX_MESSAGE_BYTES)
    head = _head(payload)
    kind = str(head.get("kind"))
    model = task_class(head.get("action")) if kind == "task" else MESSAGES.get(kind)
    if model is None:
        raise PeerError(f"unknown kind of message {kind[:40]!r}", reason=Reason.UNKNOWN_KIND)
    if len(payload) > model.max_bytes:
        raise _make_oversized_error(kind, len(payload), model.max_bytes)
    low, high = PROTOCOL_RANGE
    version = head.get("protocol", PROTOCOL)
    if not isinstance(version, int) or not low <= version <= high:
        raise PeerError(
            f"protocol {version!r} is not within {low}..{high}", reason=Reason.UNSUPPORTED_PROTOCOL
        )
    try:
        message = model.model_validate_json(payload)
    except ValidationError as error:
        raise PeerError(f"malformed {kind}: {_first_problem(kind, error)}") from error
    if federation is not None and message.federation != federation:
        raise PeerError(
            f"{message.kind} for federation {message.federation!r}, this is {federation!r}",
            reason=Reason.WRONG_FEDERATION,
        )
    return cast(AnyMessage, message)


def _make_oversized_error(what: str, size: int, limit: int) -> PeerError:
    return PeerError(f"{what} of {size} bytes exceeds {limit}", reason=Reason.OVERSIZED)


def _head(payload: bytes) -> dict[str, object]:
    try:
        value = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise PeerError(f"not JSON: {str(error)[:80]}") from error
    if not isinstance(value, dict):
        raise PeerError("not a JSON object")
    return value


def _first_problem(kind: str, error: ValidationError) -> str:
    problem = error.errors(include_url=False)[0]
    parts = ["message"] if problem["type"] == "json_invalid" else [kind, *map(str, problem["loc"])]
    return f"{'.'.join(parts)}: {problem['msg']}"
