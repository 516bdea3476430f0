"""The interface of a writer: begin a run, write each closed round once, end the run."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from edge_server.storage.records import RoundRecord, Summary


@dataclass(frozen=True)
class RunFacts:
    """A run that begins or resumes; `settings` are those of the federation file, by dotted key.

    `name` is unique and permanent for the run folder; `run` is the same for simulations of one file and seed.
    """

    federation: str
    run: str
    name: str
    rounds: int
    out: Path
    settings: Mapping[str, Any] = field(default_factory=dict)


class Writer(Protocol):
    """One destination; its methods run in their own thread, so they may raise and may be slow."""

    def begin(self, facts: RunFacts) -> int:
        """Open the run at the destination; returns its last complete round there, 0 for a new run."""
        ...

    def round(self, record: RoundRecord) -> None:
        """Write a closed round, whose number is the step."""
        ...

    def end(self, summary: Summary | None) -> None:
        """End this process's part; with a summary, the run is over."""
        ...


def scalars(record: RoundRecord) -> dict[str, float]:
    """The measured numbers of a round by name: bytes, seconds, accuracies from 0 to 1."""
    known: dict[str, float | None] = {
        "test/accuracy": record.test_accuracy,
        "test/loss": record.test_loss,
        "train/loss": record.train_loss,
        "client/accuracy": record.client_accuracy,
        **{f"tier-{tier}/accuracy": value for tier, value in sorted(record.tier_accuracy.items())},
        **_figures("test", record.test_metrics),
        **_figures("client", record.client_metrics),
        **_figures("own", record.own_metrics),
        **{
            k: v
            for tier, found in record.tier_metrics.items()
            for k, v in _figures(f"tier-{tier}", found).items()
        },
        "bytes/up": record.uplink_bytes,
        "bytes/down": record.downlink_bytes,
        "devices/selected": len(record.selected),
        "devices/counted": len(record.completed),
        "devices/missed": len(record.dropped),
        "devices/refused": len(record.rejected),
        "privacy/epsilon": record.epsilon,
        "privacy/clip": record.clip,
        "round/virtual_time_s": record.virtual_time_s,
        LAST: record.duration_s,
    }
    return {name: float(value) for name, value in known.items() if value is not None}


def _figures(prefix: str, found: Mapping[str, float]) -> dict[str, float]:
    return {f"{prefix}/{name}": value for name, value in sorted(found.items())}


LAST = "round/duration_s"  # Written last for every round: a round with this number is complete


# A writer for MLflow: an experiment per federation; a resumed run is found by its tag.
TAG = "edge_federation.run"
STATUS = {"finished": "FINISHED", "failed": "FAILED", "interrupted": "KILLED"}
LONGEST_VALUE = 500  # Maximum characters of a parameter that every MLflow store accepts


class MlflowWriter:
    """Writes to the tracking server or store at `uri`."""

    def __init__(self, uri: str) -> None:
        from mlflow.entities import Metric, Param
        from mlflow.tracking import MlflowClient

        self._metric, self._param = Metric, Param
        self._client, self._run = MlflowClient(tracking_uri=uri), ""

    def begin(self, facts: RunFacts) -> int:
        found = self._client.get_experiment_by_name(facts.federation)
        experiment = (
            self._client.create_experiment(facts.federation) if found is None else found.experiment_id
        )
        runs = self._client.search_runs([experiment], f"tags.`{TAG}` = '{facts.name}'", max_results=1)
        if runs:
            self._run = runs[0].info.run_id
            self._client.update_run(self._run, status="RUNNING")
            points = self._client.get_metric_history(self._run, LAST)
            return max((int(point.step) for point in points), default=0)
        made = self._client.create_run(experiment, run_name=facts.run, tags={TAG: facts.name})
        self._run = made.info.run_id
        params = [self._param(key, str(value)[:LONGEST_VALUE]) for key, value in facts.settings.items()]
        self._client.log_batch(self._run, params=params)
        return 0

    def round(self, record: RoundRecord) -> None:
        now = int(time.time() * 1000)
        points: list[Any] = [
            self._metric(name, value, now, record.round) for name, value in scalars(record).items()
        ]
        self._client.log_batch(self._run, metrics=points)

    def end(self, summary: Summary | None) -> None:
        """Set the run's final status; a run without a summary stays running."""
        if summary is not None:
            self._client.set_terminated(self._run, STATUS.get(summary.outcome, "FAILED"))


# A writer for Weights & Biases; a resumed run continues under the same id.
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


# A writer of event files for TensorBoard, in a folder per run.
class TensorBoardWriter:
    """Writes below `folder`; an incomplete round of a killed process is purged."""

    def __init__(self, folder: str) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._make, self._folder = SummaryWriter, Path(folder)
        self.writer: Any = None

    def begin(self, facts: RunFacts) -> int:
        folder = self._folder / facts.name
        last = _last_round(folder)
        self.writer = self._make(str(folder), purge_step=last + 1)
        return last

    def round(self, record: RoundRecord) -> None:
        for name, value in scalars(record).items():
            self.writer.add_scalar(name, value, record.round)
        self.writer.flush()

    def end(self, summary: Summary | None) -> None:
        self.writer.close()


def _last_round(folder: Path) -> int:
    """The last complete step in the event files; a truncated file is read up to its end."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    if not folder.is_dir():
        return 0
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    events.Reload()
    tags = events.Tags()["scalars"]
    return max((int(point.step) for point in events.Scalars(LAST)), default=0) if LAST in tags else 0
