"""A writer for Weights & Biases; a resumed run continues under the same id."""

from typing import Any

from edge_server.observability.trackers.writers import RunFacts, scalars
from edge_server.storage.records import RoundRecord, Summary


class WandbWriter:
    """Writes to a project (`PROJECT` or `ENTITY/PROJECT`); wandb's environment variables apply."""

    def __init__(self, project: str) -> None:
        import wandb

        self._wandb: Any = wandb
        entity, _, name = project.rpartition("/")
        self._entity, self._project = entity or None, name
        self._run: Any = None

    def begin(self, facts: RunFacts) -> int:
        self._run = self._wandb.init(
            entity=self._entity,
            project=self._project,
            id=facts.name,
            name=facts.run,
            group=facts.federation,
            resume="allow",
            config=dict(facts.settings),
            dir=str(facts.out),
            settings=self._wandb.Settings(console="off", silent=True),
        )
        return max(0, int(self._run.step) - 1)

    def round(self, record: RoundRecord) -> None:
        self._run.log(scalars(record), step=record.round, commit=True)

    def end(self, summary: Summary | None) -> None:
        """Set the run's outcome and wait until everything is sent."""
        if summary is not None:
            self._run.summary["outcome"] = summary.outcome
        self._run.finish(exit_code=0 if summary is None or summary.outcome == "finished" else 1)
