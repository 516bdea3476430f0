"""One device in a rollout."""

from dataclasses import dataclass
from enum import StrEnum

from schemas.messages import ClientReport, ModelReport, client_update, rollout

Report = ModelReport | ClientReport  # What a device reports of its stage
ASK_AGAIN_S = 5.0  # Seconds before an unanswered offer is repeated
CHECK_UP_S = 30.0  # Seconds between offers to a device that has answered, as later reports may be lost


class TargetStatus(StrEnum):
    """A device's status by its last report. From KEPT on it is final, but a kept model may be given up."""

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


REACHED: dict[str, TargetStatus] = {
    rollout.Stage.OFFERED: TargetStatus.FETCHING,
    rollout.Stage.FETCHED: TargetStatus.COMPARING,
    rollout.Stage.COMPARED: TargetStatus.SWITCHING,
    rollout.Stage.SWITCHED: TargetStatus.WATCHING,
    rollout.Stage.KEPT: TargetStatus.KEPT,
    rollout.Stage.REFUSED: TargetStatus.REFUSED,
    rollout.Stage.ROLLED_BACK: TargetStatus.ROLLED_BACK,
    client_update.UpdateStage.INSTALLED: TargetStatus.COMPARING,
    client_update.UpdateStage.CHECKED: TargetStatus.SWITCHING,
}  # The status that follows from a report; stages of models and of releases have their names in common
ENDED = frozenset({TargetStatus.KEPT, TargetStatus.REFUSED, TargetStatus.ROLLED_BACK})
"""Final statuses that a device reports itself."""
FAILED = frozenset({TargetStatus.REFUSED, TargetStatus.ROLLED_BACK, TargetStatus.SILENT})
LOADING = frozenset({TargetStatus.ASKED, TargetStatus.FETCHING})
"""Statuses in which a device may request chunks."""
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
"""Statuses in which a device may use the new version."""


@dataclass(frozen=True)
class Target:
    """A device. `ask_at`: when the offer is repeated; `deadline`: when it counts as away or silent.

    Both are in seconds of the server's clock. `report` is its last report.
    """

    device: str
    tier: int
    group: int
    status: TargetStatus = TargetStatus.WAITING
    report: Report | None = None
    ask_at: float = 0.0
    deadline: float = 0.0

    @property
    def is_settled(self) -> bool:
        """Whether the rollout no longer waits for it."""
        return self.status in ENDED or self.status in (TargetStatus.SILENT, TargetStatus.AWAY)

    @property
    def had_it(self) -> bool:
        """Whether it used this version before the rollout began, so that nothing was compared."""
        if self.status is not TargetStatus.KEPT or self.report is None:
            return False
        return self.report.had_it if isinstance(self.report, ClientReport) else self.report.candidate is None

    @property
    def may_serve(self) -> bool:
        """Whether the rollout may have switched it to the new version."""
        return self.status in SWITCHED and not self.had_it


def accepts(target: Target, report: Report) -> bool:
    """Whether a report changes the status: final statuses stay, but a kept model may be given up later."""
    if target.status not in ENDED:
        return True
    return target.status is TargetStatus.KEPT and report.stage == rollout.Stage.ROLLED_BACK
