"""Diagnostics of a device on request, on the `fleet` topics: what an operator would read on the board itself.

The requester repeats its request, with the same id, until it has every part of the answer. A device answers
each request: with a receipt while it collects, with parts, or with a refusal.
"""

from enum import StrEnum
from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints, model_validator

from schemas.base import Digest, Name
from schemas.messages.message import Message
from schemas.values import Seconds, Text

MAX_PART_CHARS = 24_000  # characters of an answer in one message; escaped in JSON they stay below 64 kB
MAX_PARTS = 16
MAX_ANSWER_CHARS = MAX_PARTS * MAX_PART_CHARS
MAX_LOG_LINES = 5_000
PARTS_AT_ONCE = 4  # parts that a device sends for one request; the requester asks for further ones

RequestId = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{16}$")]
PartNumber = Annotated[int, Field(ge=0, lt=MAX_PARTS)]
LogLevel = Literal["debug", "info", "warning", "error"]


class Diagnostic(StrEnum):
    """What may be asked of a device; `bundle` is all of the others."""

    DOCTOR = "doctor"
    LOGS = "logs"
    PROFILE = "profile"
    CRASH = "crash"
    BUNDLE = "bundle"


class DiagnosticObstacle(StrEnum):
    """Why a device does not answer a request."""

    DISABLED = "disabled"
    RATE_LIMITED = "rate-limited"
    BUSY = "busy"
    FAILED = "failed"


class DiagnosticRequest(Message):
    """To a device: collect a diagnostic, or send the `wanted` parts of one that is collected.

    `since_s`, `level` and `lines` limit log lines: to the last seconds, to a level and above, to the newest.
    Without `wanted` the device sends the first parts.
    """

    kind: Literal["diagnostic-request"] = "diagnostic-request"
    device: Name
    request: RequestId
    what: Diagnostic
    since_s: Seconds | None = None
    level: LogLevel = "debug"
    lines: int = Field(default=1_000, ge=1, le=MAX_LOG_LINES)
    wanted: Annotated[tuple[PartNumber, ...], Field(max_length=MAX_PARTS)] = ()


class DiagnosticReceipt(Message):
    """From a device: the request is being worked on."""

    kind: Literal["diagnostic-receipt"] = "diagnostic-receipt"
    device: Name
    request: RequestId


class DiagnosticPart(Message):
    """From a device: part number `part` of `parts` of an answer.

    The parts in order are the text of a JSON document, whose sha256 is `digest`.
    """

    kind: Literal["diagnostic-part"] = "diagnostic-part"
    device: Name
    request: RequestId
    part: PartNumber
    parts: int = Field(ge=1, le=MAX_PARTS)
    digest: Digest
    text: Annotated[str, Field(min_length=1, max_length=MAX_PART_CHARS)]
    max_bytes: ClassVar[int] = 64 * 1024 - 1

    @model_validator(mode="after")
    def _number_is_below_count(self) -> "DiagnosticPart":
        if self.part >= self.parts:
            raise ValueError(f"part {self.part} of {self.parts}: numbers begin with 0")
        return self


class DiagnosticRefusal(Message):
    """From a device: it does not answer the request; `again_s` is when to ask again, if that may help."""

    kind: Literal["diagnostic-refusal"] = "diagnostic-refusal"
    device: Name
    request: RequestId
    obstacle: DiagnosticObstacle
    again_s: Seconds | None = None
    detail: Text = ""


DiagnosticAnswer = DiagnosticReceipt | DiagnosticPart | DiagnosticRefusal
