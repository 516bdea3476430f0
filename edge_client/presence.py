"""That a device is there: its births and deaths, each with the number of the connection that it is about.

A later connection has a higher number, in a later process too: a will that comes late ends no newer one.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from edge_client.agent_settings import AgentSettings
from edge_client.disk import note_session
from edge_client.eligibility.verdict import MAY_TRAIN, Verdict
from schemas.messages import Birth, Death, encode_message
from schemas.topics import Channel, DeviceTopic
from schemas.values import DataCard

if TYPE_CHECKING:
    from edge_client.data.labelled import LabelledData


class Presence:
    """Of one device, with what it says of its data; `session` is the number of its last connection."""

    def __init__(self, settings: AgentSettings, train: LabelledData) -> None:
        self._settings = settings
        self._sessions = settings.state / "session"
        self._card = DataCard(
            source=settings.source,
            examples=len(train),
            input_shape=train.input_shape,
            num_classes=train.num_classes,
        )
        self.session = 0

    def next_session(self) -> int:
        """Higher than any session of this device before, also where the clock was set back."""
        try:
            last = int(self._sessions.read_text())
        except (OSError, ValueError):
            last = 0
        return max(last + 1, int(time.time() * 1000))

    def will(self, session: int) -> tuple[str, bytes]:
        """What the broker says for the device where it can no more, and on which topic."""
        topic = DeviceTopic(self._settings.federation, self._settings.device, Channel.BIRTH)
        return str(topic), encode_message(self._death(session))

    def connected(self, session: int, verdict: Verdict = MAY_TRAIN) -> Birth:
        """The connection with this number is up, and from now on all is said in its name."""
        self.session = session
        note_session(self._sessions, session)
        return self.standing(verdict)

    def standing(self, verdict: Verdict) -> Birth:
        """The device is there, and may train or not."""
        return Birth(
            federation=self._settings.federation,
            device=self._settings.device,
            session=self.session,
            profile=self._settings.profile,
            data=self._card,
            eligibility=verdict.eligibility,
            ineligible_because=verdict.detail[:200],
        )

    def death(self) -> Death:
        """The device leaves: a clean disconnect sends no last will."""
        return self._death(self.session)

    def _death(self, session: int) -> Death:
        return Death(federation=self._settings.federation, device=self._settings.device, session=session)
