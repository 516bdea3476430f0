"""One device in a rollout: asked, on its way, kept, or lost."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from schemas.messages import ModelReport
from schemas.messages.rollout_terms import Stage

ASK_AGAIN_S = 5.0
"""How long an offer may stay unanswered before it is repeated."""
CHECK_UP_S = 30.0
"""How often a device that has answered is asked again: what it said may have been lost."""


class Status(StrEnum):
    """Where a device is, as far as its reports have told. From `kept` on it is final, but may be undone."""

    WAITING = "waiting"
    ASKED = "asked"
    FETCHING = "fetching"
    COMPARING = "comparing"
    SWITCHING = "switching"
    WATCHING = "watching"
    KEPT = "kept"
    REFUSED = "refused"
    ROLLED_BACK = "rolled back"
    SILENT = "silent"
    AWAY = "away"


REACHED = {
    Stage.OFFERED: Status.FETCHING,
    Stage.FETCHED: Status.COMPARING,
    Stage.COMPARED: Status.SWITCHING,
    Stage.SWITCHED: Status.WATCHING,
    Stage.KEPT: Status.KEPT,
    Stage.REFUSED: Status.REFUSED,
    Stage.ROLLED_BACK: Status.ROLLED_BACK,
}
ENDED = frozenset({Status.KEPT, Status.REFUSED, Status.ROLLED_BACK})
"""What a device itself has said for good."""
FAILED = frozenset({Status.REFUSED, Status.ROLLED_BACK, Status.SILENT})
LOADING = frozenset({Status.ASKED, Status.FETCHING})
"""Those who may be asking for chunks."""
UNDER_WAY = frozenset({Status.ASKED, Status.FETCHING, Status.COMPARING, Status.SWITCHING, Status.WATCHING})
SWITCHED = frozenset({Status.SWITCHING, Status.WATCHING, Status.KEPT, Status.SILENT})
"""Those who may be serving the new model."""


@dataclass(frozen=True)
class Target:
    """A device's part. `ask_at`: when it is told again; `deadline`: when it counts as away or silent.

    Both are in seconds of the server's clock. `report` is the last thing that it said.
    """

    device: str
    tier: int
    group: int
    status: Status = Status.WAITING
    report: ModelReport | None = None
    ask_at: float = 0.0
    deadline: float = 0.0

    @property
    def settled(self) -> bool:
        """Whether nobody need wait for it."""
        return self.status in ENDED or self.status in (Status.SILENT, Status.AWAY)

    @property
    def had_it(self) -> bool:
        """Whether it served this version before the rollout began: nothing was compared."""
        return self.status is Status.KEPT and self.report is not None and self.report.candidate is None

    @property
    def may_serve(self) -> bool:
        """Whether the rollout may have made it serve the new model."""
        return self.status in SWITCHED and not self.had_it


def accepts(target: Target, report: ModelReport) -> bool:
    """Whether a report is news: what was final stays, but for a model that was kept and then given up."""
    if target.status not in ENDED:
        return True
    return target.status is Status.KEPT and report.stage is Stage.ROLLED_BACK
