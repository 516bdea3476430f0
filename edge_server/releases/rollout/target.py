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


class TargetStatus(StrEnum):
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
    Stage.OFFERED: TargetStatus.FETCHING,
    Stage.FETCHED: TargetStatus.COMPARING,
    Stage.COMPARED: TargetStatus.SWITCHING,
    Stage.SWITCHED: TargetStatus.WATCHING,
    Stage.KEPT: TargetStatus.KEPT,
    Stage.REFUSED: TargetStatus.REFUSED,
    Stage.ROLLED_BACK: TargetStatus.ROLLED_BACK,
}
ENDED = frozenset({TargetStatus.KEPT, TargetStatus.REFUSED, TargetStatus.ROLLED_BACK})
"""What a device itself has said for good."""
FAILED = frozenset({TargetStatus.REFUSED, TargetStatus.ROLLED_BACK, TargetStatus.SILENT})
LOADING = frozenset({TargetStatus.ASKED, TargetStatus.FETCHING})
"""Those who may be asking for chunks."""
UNDER_WAY = frozenset(
    {
        TargetStatus.ASKED,
        TargetStatus.FETCHING,
        TargetStatus.COMPARING,
        TargetStatus.SWITCHING,
        TargetStatus.WATCHING,
    }
)
SWITCHED = frozenset({TargetStatus.SWITCHING, TargetStatus.WATCHING, TargetStatus.KEPT, TargetStatus.SILENT})
"""Those who may be serving the new model."""


@dataclass(frozen=True)
class Target:
    """A device's part. `ask_at`: when it is told again; `deadline`: when it counts as away or silent.

    Both are in seconds of the server's clock. `report` is the last thing that it said.
    """

    device: str
    tier: int
    group: int
    status: TargetStatus = TargetStatus.WAITING
    report: ModelReport | None = None
    ask_at: float = 0.0
    deadline: float = 0.0

    @property
    def settled(self) -> bool:
        """Whether nobody need wait for it."""
        return self.status in ENDED or self.status in (TargetStatus.SILENT, TargetStatus.AWAY)

    @property
    def had_it(self) -> bool:
        """Whether it served this version before the rollout began: nothing was compared."""
        return self.status is TargetStatus.KEPT and self.report is not None and self.report.candidate is None

    @property
    def may_serve(self) -> bool:
        """Whether the rollout may have made it serve the new model."""
        return self.status in SWITCHED and not self.had_it


def accepts(target: Target, report: ModelReport) -> bool:
    """Whether a report is news: what was final stays, but for a model that was kept and then given up."""
    if target.status not in ENDED:
        return True
    return target.status is TargetStatus.KEPT and report.stage is Stage.ROLLED_BACK
