"""Makes a device's births and deaths, each with the number of its connection.

Numbers grow, also across processes, so that a late last will does not end a newer connection.
"""

import json
import logging
import os
import secrets
import socket
import time
from collections.abc import Callable
from typing import Any

from edge_client.agent.eligibility.verdict import MAY_TRAIN, EligibilityVerdict
from edge_client.agent.settings import AgentSettings
from edge_client.data.classes import BIPOLAR, LONGEST_NAME
from edge_client.data.local import LocalData
from edge_client.inference.model_slots import Slots
from edge_client.inference.providers.record import choice_in_use
from edge_client.storage.private_state import note_session
from edge_client.transport.broker_link import BrokerAddress
from schemas import capabilities, topics, values
from schemas.messages import Birth, BlobRequest, Death, blobs, encode_message

log = logging.getLogger(__name__)

MAX_BYTES = 2000  # of class names, and of columns, as JSON: a birth has 4 kB, with the profile in it


def card_of(local: LocalData, *, source: str) -> values.DataCard:
    """The data card of a device's training part; names that do not fit are omitted with a log line.

    Of columns that do not fit only the first is there.
    """
    data = local.train
    # -1 and 1 are no places in a list of names.
    named = data.named or data.class_names == BIPOLAR
    names = data.class_names if named else ()
    if not fits(names):
        log.warning(
            "the names of %d classes do not fit into what this device says of itself: the federation's file "
            "must state them in [data] classes, or its server have data with these names",
            len(names),
        )
        names = ()
    columns = data.columns
    if _bytes([column.model_dump() for column in columns]) > MAX_BYTES:
        log.warning(
            "the names of %d columns do not fit into what this device says of itself: they are compared if "
            "the federation's file states them in [data] columns, or its server has data with these names",
            len(columns),
        )
        columns = columns[:1]
    return values.DataCard(
        source=source,
        examples=len(data),
        input_shape=data.input_shape,
        num_classes=data.num_classes if named or data.labels.ndim > 1 else int(data.class_names[-1]) + 1,
        named=named,
        class_names=names,
        new=local.new,
        drift=None if local.alarm is None else local.alarm.finding,
        skipped=data.skipped,
        columns=columns,
    )


def fits(names: tuple[str, ...]) -> bool:
    """Whether these names fit a birth message."""
    if len(names) > values.MAX_CLASS_NAMES or not all(0 < len(name) <= LONGEST_NAME for name in names):
        return False
    return _bytes(names) <= MAX_BYTES


def _bytes(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False).encode())


class Presence:
    """The presence messages of one device; `session` is the number of its last connection.

    `certificate_until` returns when the certificate expires, in seconds since 1970; None without one.
    """

    def __init__(
        self,
        settings: AgentSettings,
        data: LocalData,
        certificate_until: Callable[[], float | None] = lambda: None,
    ) -> None:
        self._settings, self._certificate_until = settings, certificate_until
        self._sessions = settings.state / "session"
        self.session = 0
        self.instance = secrets.token_hex(8)
        self._seen_model = self._model()
        self._origin = ""
        self.describe(data)

    def describe(self, data: LocalData) -> None:
        """Describe this data in later births."""
        self._card = card_of(data, source=self._settings.source)

    def next_session(self) -> int:
        """A number above those of all earlier connections, even if the clock was set back."""
        try:
            last = int(self._sessions.read_text())
        except (OSError, ValueError):
            last = 0
        return max(last + 1, int(time.time() * 1000))

    def will(self, session: int) -> tuple[str, bytes]:
        topic = topics.DeviceTopic(self._settings.federation, self._settings.device, topics.Channel.BIRTH)
        return str(topic), encode_message(self._death(session))

    def begin_session(self, session: int, verdict: EligibilityVerdict = MAY_TRAIN) -> Birth:
        """The birth of a new connection with this number."""
        self.session, self._origin = session, origin(self._settings.address)
        note_session(self._sessions, session)
        return self.birth(verdict)

    def birth(self, verdict: EligibilityVerdict) -> Birth:
        """The birth for this verdict; columns and class names that do not fit the message are left out."""
        card = self._card
        birth, shorter = self._birth(verdict, card), {"columns": (card.columns or ())[:1], "class_names": ()}
        for name, left in shorter.items():
            if len(birth.model_dump_json()) > Birth.max_bytes:
                card = card.model_copy(update={name: left})
                birth = self._birth(verdict, card)
        return birth

    def _birth(self, verdict: EligibilityVerdict, card: values.DataCard) -> Birth:
        profile = self._settings.profile
        model, provider = self._model()
        reads_epochs = {"software": {**profile.software, "epochs": "1"}}
        return Birth(
            federation=self._settings.federation,
            device=self._settings.device,
            session=self.session,
            profile=profile.model_copy(update=reads_epochs),
            data=card,
            eligibility=verdict.eligibility,
            ineligible_because=verdict.detail[:200],
            instance=self.instance,
            origin=self._origin,
            certificate_until=self._certificate_until(),
            labels=self._settings.labels,
            model=model,
            provider=provider,
            **capabilities.birth_fields(),
        )

    def _model(self) -> tuple[str, str]:
        """The version of the model in use, and its provider if one was chosen; empty without one."""
        current = Slots(self._settings.state / "serving").current()
        if current is None:
            return "", ""
        choice = choice_in_use(current.path, current.model.digest)
        return current.model.version, "" if choice is None else choice.provider

    def has_new_model(self) -> bool:
        """Whether another model, or the same on another provider, is in use than at the last look."""
        found = self._model()
        changed, self._seen_model = found != self._seen_model, found
        return changed

    def probe(self) -> BlobRequest:
        """A request that any server answers at once: for a blob that does not exist."""
        return BlobRequest(
            federation=self._settings.federation,
            device=self._settings.device,
            digest=blobs.UNKNOWN_DIGEST,
            first=0,
            count=1,
        )

    def death(self) -> Death:
        """The death to publish before a clean disconnect, which sends no last will."""
        return self._death(self.session)

    def _death(self, session: int) -> Death:
        return Death(federation=self._settings.federation, device=self._settings.device, session=session)


def origin(broker: BrokerAddress) -> str:
    """This machine's name, process, and address as seen from the broker if it is known."""
    machine = f"{socket.gethostname()[:100]}, process {os.getpid()}"
    try:
        family, kind, _, _, address = socket.getaddrinfo(broker.host, broker.port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            # On a datagram socket this only selects the route; nothing is sent.
            probe.connect(address)
            return f"{machine}, {probe.getsockname()[0]}"
    except OSError:
        return machine
