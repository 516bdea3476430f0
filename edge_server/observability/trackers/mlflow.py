"""A writer for MLflow: an experiment per federation; a resumed run is found by its tag."""

import time
from typing import Any

from edge_server.observability.trackers.writers import LAST, RunFacts, scalars
from edge_server.storage.records import RoundRecord, Summary

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
