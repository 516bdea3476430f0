"""A device's presence: its certificate from the authority; birth, death, telemetry."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from schemas import values
from schemas.base import Digest, Labels, Name
from schemas.capabilities import Capability
from schemas.messages.message import Message


class CertificateRequest(Message):
    """Request for a certificate of the device's key; `csr` is PEM (PKCS #10).

    `proof` shows that the device has an enrolment code (`schemas.security.enrolment`). A renewal needs none:
    the broker lets only the device itself publish to its topic.
    """

    kind: Literal["certificate-request"] = "certificate-request"
    device: Name
    csr: values.Pem
    proof: Digest | None = None


class IssuedCertificate(Message):
    """The authority's answer: the device's certificate and that of the authority, both PEM.

    `proof` answers the request's: only a holder of the enrolment code can compute it.
    """

    kind: Literal["issued-certificate"] = "issued-certificate"
    device: Name
    certificate: values.Pem
    authority: values.Pem
    proof: Digest | None = None
    max_bytes: ClassVar[int] = 10 * 1024


@dataclass(frozen=True)
class Shown:
    """Marks a text of a birth: the fleet's page shows it under this label."""

    label: str


class Birth(Message):
    """Retained: the device is present. A higher `session` replaces a lower one.

    It is published again when `eligibility` changes. `instance` identifies the process and `origin` describes
    its machine, so that two devices with the same name can be distinguished. `certificate_until` is when the
    device's certificate expires. `labels` are those that the device's owner has set there, and `model` is the
    version of the model in use; `provider` is what runs it, where onnxruntime has more than the CPU. The four
    flags and the words of `can` state `capabilities`; words that a server does not know mean nothing to it.
    """

    kind: Literal["birth"] = "birth"
    device: Name
    session: int = Field(ge=0)
    profile: values.CapabilityProfile = values.CapabilityProfile.model_construct()
    data: values.DataCard
    eligibility: values.Eligibility = values.Eligibility.TRAIN
    ineligible_because: Annotated[values.Text, Shown("Does not train")] = ""
    instance: values.Instance = ""
    origin: values.Text = ""
    certificate_until: values.UnixSeconds | None = None
    labels: Labels = Field(default_factory=dict, exclude_if=lambda labels: not labels)
    model: Annotated[values.Text, Field(exclude_if=lambda model: not model)] = ""
    provider: Annotated[values.Text, Field(exclude_if=lambda name: not name), Shown("Models run on")] = ""
    prunes_first: Annotated[bool, Field(exclude_if=lambda able: not able)] = False
    trains_sharply: Annotated[bool, Field(exclude_if=lambda able: not able)] = False
    matches_numbers: Annotated[bool, Field(exclude_if=lambda able: not able)] = False
    takes_fixed: Annotated[bool, Field(exclude_if=lambda able: not able)] = False
    can: Annotated[tuple[Name, ...], Field(max_length=64, exclude_if=lambda words: not words)] = ()

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What this version of the device can do, as far as it is known here."""
        return frozenset(word for word in Capability if word in self.can or getattr(self, word, False))

    @property
    def page_texts(self) -> dict[str, str]:
        """The texts that the fleet's page shows, by label."""
        marks = {name: field.metadata for name, field in type(self).model_fields.items()}
        return {
            mark.label: text
            for name, metadata in marks.items()
            for mark in metadata
            if isinstance(mark, Shown) and (text := getattr(self, name))
        }


class Death(Message):
    """Last will, retained in place of the birth: the device of that `session` is gone."""

    kind: Literal["death"] = "death"
    device: Name
    session: int = Field(ge=0)


class Telemetry(Message):
    """A device's progress and the state of its board, sent at QoS 0."""

    kind: Literal["telemetry"] = "telemetry"
    device: Name
    session: int = Field(ge=0)
    phase: Literal["idle", "fetching", "training", "uploading", "exporting"]
    round: values.RoundNumber | None = None
    epoch: values.Count | None = None
    epochs: values.Count | None = None
    loss: values.Loss | None = None
    board: values.BoardState | None = None
