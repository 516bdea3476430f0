"""Writers: begin a run, write each closed round once, end the run; each has a thread of its own.

A slow or failing writer neither delays nor ends a run.
"""

import logging
import queue
import secrets
import threading
import time
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from edge_server.observability.snapshot import Snapshot
from edge_server.storage.records import RoundRecord, Summary

log = logging.getLogger(__name__)


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


WRITERS: dict[str, Callable[[str], Writer]] = {
    "tensorboard": TensorBoardWriter,
    "mlflow": MlflowWriter,
    "wandb": WandbWriter,
}  # Each name is also that of the extra that installs the package

PATIENCE_S = 30.0  # Seconds that the end of a run waits for a writer


class WriterThread:
    """Passes each closed round to one writer once; stops at the writer's first error, which is logged."""

    def __init__(self, name: str, writer: Writer, out: Path) -> None:
        self._name, self._writer, self._out = name, writer, out
        self._to_write: queue.SimpleQueue[RunFacts | RoundRecord | None] = queue.SimpleQueue()
        self._seen = -1
        self._summary: Summary | None = None
        # A daemon: a writer that hangs must not keep the process.
        self._thread = threading.Thread(target=self._run, name=f"writer-{name}", daemon=True)
        self._thread.start()

    def show(self, snapshot: Snapshot) -> None:
        """Queue the rounds closed since the last call, at first also those of earlier processes."""
        if self._seen < 0:
            self._seen = 0
            self._to_write.put(facts_of(snapshot, self._out))
        for record in snapshot.history[self._seen :]:
            self._to_write.put(record)
        self._seen = len(snapshot.history)
        self._summary = snapshot.summary

    def close(self, patience_s: float = PATIENCE_S) -> None:
        """Wait until everything is written, at most `patience_s` seconds."""
        self._to_write.put(None)
        self._thread.join(patience_s)
        if self._thread.is_alive():
            log.warning("%s has not written everything after %g s; giving up", self._name, patience_s)

    def _run(self) -> None:
        try:
            self._write()
        except Exception as error:
            # The text comes from a foreign library and may be long.
            why = str(error).partition("\n")[0][:300] or type(error).__name__
            log.warning("%s stopped writing, the run continues: %s", self._name, why)

    def _write(self) -> None:
        facts = self._to_write.get()
        if not isinstance(facts, RunFacts):
            return
        last = self._writer.begin(facts)
        while isinstance(record := self._to_write.get(), RoundRecord):
            if record.round > last:
                self._writer.round(record)
        self._writer.end(self._summary)


def facts_of(snapshot: Snapshot, out: Path) -> RunFacts:
    """The run's facts, with the settings of its folder."""
    try:
        settings = tomllib.loads((out / "federation.toml").read_text())
    except (OSError, ValueError) as error:
        log.warning("the run's settings cannot be read: %s", error)
        settings = {}
    name = f"{snapshot.run}-{folder_id(out)}"
    return RunFacts(snapshot.federation, snapshot.run, name, snapshot.rounds, out, flat(settings))


def folder_id(out: Path) -> str:
    """A random id of the run folder, drawn once and kept in `writers.id`."""
    path = out / "writers.id"
    if not path.exists():
        aside = path.with_suffix(".new")
        aside.write_text(secrets.token_hex(4))
        aside.replace(path)
    return path.read_text()


def flat(settings: Mapping[str, Any], under: str = "") -> dict[str, Any]:
    """Settings by dotted key: `{"clients": {"fraction": 1}}` is `{"clients.fraction": 1}`."""
    found: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping):
            found.update(flat(value, f"{under}{key}."))
        else:
            found[under + key] = value
    return found
