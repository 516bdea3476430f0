"""Offering a release of the client itself to the devices that run an older one, on the `fleet` topics."""

from enum import StrEnum
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from schemas.base import Frozen, Name
from schemas.messages.message import Message
from schemas.security.client_release import Fit, PythonBound
from schemas.security.manifest import SignedManifest
from schemas.tensors.chunks import BlobRef
from schemas.values import Bytes, Seconds, Text


class UpdateStage(StrEnum):
    """A device's progress with the offered release. The last three stages are final."""

    OFFERED = "offered"
    FETCHED = "fetched"
    INSTALLED = "installed"
    CHECKED = "checked"
    SWITCHED = "switched"
    KEPT = "kept"
    REFUSED = "refused"
    ROLLED_BACK = "rolled-back"


class UpdateCause(StrEnum):
    """Why a device refuses a release or goes back to the former one: stable codes."""

    UNTRUSTED = "untrusted"
    DAMAGED = "damaged"
    INCOMPATIBLE = "incompatible"
    NO_SPACE = "no-space"
    NO_LAUNCHER = "no-launcher"
    NOT_INSTALLED = "not-installed"
    FAILED_CHECK = "failed-check"
    CRASHES = "crashes"
    HANGS = "hangs"
    NO_CONNECTION = "no-connection"
    SUPERSEDED = "superseded"
    WITHDRAWN = "withdrawn"


class UpdateTerms(Frozen):
    """When a device keeps a release, and when it goes back.

    - `watch_s`: seconds for which it must have been connected before the release is kept;
    - `connect_s`: seconds without a connection, or without a sign of life, after which it goes back;
    - `starts`: most starts while it is watched.
    """

    watch_s: Seconds = 300.0
    connect_s: Annotated[float, Field(gt=0, le=1e6)] = 600.0
    starts: int = Field(default=3, ge=1, le=100)


class ClientOffer(Message):
    """To a device: fetch this archive of wheels, install it next to the running client, check it, switch.

    `manifest` is the signature for the archive. `fits`, `python` and `installed_bytes` are those of the
    release in the archive: a device that cannot use it does not fetch it. The offer is repeated until the
    device is done, and answered with a `ClientReport` each time.
    """

    kind: Literal["client-offer"] = "client-offer"
    device: Name
    rollout: Name
    version: Name
    blob: BlobRef
    manifest: SignedManifest | None = None
    fits: Annotated[tuple[Fit, ...], Field(max_length=64)] = ()
    python: PythonBound = ""
    installed_bytes: Bytes = 0
    terms: UpdateTerms = UpdateTerms.model_construct()
    max_bytes: ClassVar[int] = 8 * 1024


class ClientWithdrawal(Message):
    """To a device: do not run that release; if it runs, go back to the former one."""

    kind: Literal["client-withdrawal"] = "client-withdrawal"
    device: Name
    rollout: Name
    version: Name
    detail: Text = ""


class ClientReport(Message):
    """A device's stage with the offered release, and the `cause` of a refusal or a return.

    `running` is the version of the package that runs. `had_it`: it ran this release before it was offered.
    """

    kind: Literal["client-report"] = "client-report"
    device: Name
    rollout: Name
    version: Name
    stage: UpdateStage
    cause: UpdateCause | None = None
    detail: Text = ""
    running: Text = ""
    had_it: bool = False
