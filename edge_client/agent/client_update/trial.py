"""The trial of an offered release of the client: what is saved of it, and how it is watched.

    offered -> fetched -> installed -> checked -> switched -> (a new process, watched) -> kept

The process that is watched is of the release. One that cannot watch itself is given up by the launcher.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from edge_client.agent.offers.machine import finish, object_to
from edge_client.agent.offers.trial import (
    ROLLED_BACK,
    SWITCHED,
    Command,
    Restart,
    Restored,
    Switch,
    Trial,
    TrialState,
)
from schemas.messages import ClientOffer, ClientReport
from schemas.messages.client_update import UpdateCause, UpdateStage

Step = tuple["ReleaseState", Sequence[Command]]


class ReleaseTrial(Trial):
    """An offered release and its stage. A former version ignores newer fields.

    `slot` and `former` are the environments of the release and before it, once it was switched to. The
    launcher counts the starts after the switch.
    """

    causes = UpdateCause
    steps: ClassVar = {UpdateStage.FETCHED: UpdateStage.INSTALLED, UpdateStage.INSTALLED: UpdateStage.CHECKED}
    counted = frozenset(steps)

    offer: ClientOffer
    stage: UpdateStage = UpdateStage.OFFERED
    cause: UpdateCause | None = None
    slot: str = ""
    former: str = ""

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """The trial in a file of another version, perhaps: fields that this one lacks are left out."""
        stored = json.loads(data)
        offer = {name: value for name, value in stored["offer"].items() if name in ClientOffer.model_fields}
        return cls.model_validate_json(json.dumps({**stored, "offer": offer}))


@dataclass(frozen=True)
class ReleaseState(TrialState):
    """The trial of a release. `version`: that of this process's package.

    `watched_s` are the seconds of earlier connections of this process; `since` is when it was last connected
    or cut off, in seconds of the device's clock.
    """

    trial: ReleaseTrial | None = None
    version: str = ""
    watched_s: float = 0.0
    since: float = 0.0

    @property
    def is_undecided(self) -> bool:
        """Whether a switch is under way, which an offer of another release must not disturb."""
        trial = self.trial
        return trial is not None and (trial.going_back or trial.is_ready or trial.stage == SWITCHED)

    def with_link(self, now: float, *, connected: bool) -> Self:
        """Only connected time counts as watched."""
        if self.connected == connected:
            return self
        passed = now - self.since if self.connected else 0.0
        return replace(self, connected=connected, watched_s=self.watched_s + passed, since=now)

    def with_restored(self, event: Restored, now: float) -> Self:
        """A process of the former version finds that the trial has ended, unless it shall still switch."""
        restored = replace(super().with_restored(event, now), watched_s=0.0, since=now)
        trial = restored.trial
        assert trial is not None
        if trial.is_final or event.runs_it or not restored.is_undecided:
            return restored
        if trial.going_back:
            return restored.with_trial(trial.at(ROLLED_BACK, going_back=False))
        superseded = UpdateCause.SUPERSEDED, "another environment was put in its place"
        end = event.back or (superseded if trial.stage == SWITCHED else None)
        return restored if end is None else restored.with_trial(trial.with_end(ROLLED_BACK, end))

    def make_trial(self, offer: ClientOffer) -> ReleaseTrial:
        return ReleaseTrial(offer=offer)

    def report(self) -> ClientReport:
        return ClientReport(**self.about(), running=self.version, had_it=self._trial.had_it)

    def watch(self, now: float) -> Step:
        """The release runs with the next start, if not in this process."""
        return self, [] if self.runs_it else [Restart()]

    def resume_watch(self, now: float) -> Step:
        """Switch again, which notes what a process that ended too early has left out."""
        return self, [Switch(self._trial)]

    def look(self, now: float) -> Step:
        """Keep a release that was connected for long enough; go back from one that does not connect."""
        trial, passed = self._trial, now - self.since
        terms = trial.offer.terms
        if not self.runs_it:
            return self, []
        if not self.connected and passed >= terms.connect_s:
            return object_to(self, trial, (UpdateCause.NO_CONNECTION, f"no connection for {passed:.0f} s"))
        if self.connected and self.watched_s + passed >= terms.watch_s:
            return finish(self.with_trial(trial.at(UpdateStage.KEPT)))
        return self, []

    @property
    def _trial(self) -> ReleaseTrial:
        assert self.trial is not None
        return self.trial
