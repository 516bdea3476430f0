"""What a server and its standby say to each other."""

from typing import Literal

from pydantic import Field

from schemas.messages.message import Message
from schemas.tensors.chunks import BlobRef
from schemas.values import Instance, Text


class StandbyReport(Message):
    """From a standby, every second and after each entry: it has taken all entries up to `confirmed`.

    It has heard of those up to `known`. `series` is that of the entries; empty until it has heard of one.
    """

    kind: Literal["standby-report"] = "standby-report"
    standby: Instance
    series: Instance = ""
    known: int = Field(default=0, ge=0)
    confirmed: int = Field(default=0, ge=0)
    origin: Text = ""


class StandbyEntry(Message):
    """To a standby: the next change of the run folder, as a blob; entry 1 of a series is the whole folder."""

    kind: Literal["standby-entry"] = "standby-entry"
    standby: Instance
    series: Instance
    number: int = Field(ge=1)
    entry: BlobRef


class StandbyRefusal(Message):
    """To a standby: this run cannot be followed, and why."""

    kind: Literal["standby-refusal"] = "standby-refusal"
    standby: Instance
    detail: Text
