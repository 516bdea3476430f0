"""Virtual devices of one tier and plan train in common steps, in cohorts that virtual time alone decides."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load

from edge_client.training.cohort import jobs
from edge_client.training.cohort.training import CohortTraining
from edge_server.config.load import load_config
from edge_server.simulation.client_work import ClientJob, ClientWork, CohortWorkers, Outcome
from edge_server.simulation.cohorts import CohortEngine, cohort_kind, with_cohort_size
from edge_server.simulation.inputs import training_data
from edge_server.simulation.population import make_population
from schemas.errors import ConfigError
from schemas.messages import TrainTask
from schemas.strategy import TrainingPlan
from schemas.values import ModelSpec
from tests.edge_server.simulation.small import history, last_model, run
from tests.slow import slow

ROUNDS = (
    "rounds=2",
    "num-clients=6",
    "fraction=1.0",
    "simulation.clock=[]",
    "local-epochs=1",
    # It takes longer than the training.
    "firewall.leave-one-out=0",
)
SGD = ("optimizer=sgd", "learning-rate=0.05")  # Adam's steps are as large where a gradient is all rounding
CLOSE = 1e-4


class Recorded(CohortWorkers[Sequence[ClientJob]]):
    """Workers that note which jobs they get in one go, and do none."""

    def __init__(self) -> None:
        self.begun: list[list[str]] = []
        self.cancelled: list[list[str]] = []

    def submit_together(self, jobs: Sequence[ClientJob]) -> Sequence[ClientJob]:
        self.begun.append([job.device for job in jobs])
        return jobs

    def results(self, handle: Sequence[ClientJob], *, timeout_s: float) -> Sequence[Outcome] | None:
        return [Outcome(job.device) for job in handle]

    def cancel(self, handle: Sequence[ClientJob]) -> None:
        self.cancelled.append([job.device for job in handle])


def job(device: str, *, tier: int = 1, seed: int = 0, **more: Any) -> ClientJob:
    shape = (1, 8, 8) if tier == 1 else (1, 4, 4)
    task = TrainTask(
        federation="home", run="run", round=1, attempt=1, tier=tier, ratio=0, blobs={},
        model=ModelSpec(name="mlp", input_shape=shape, num_classes=10), training=TrainingPlan(seed=seed),
    )  # fmt: skip
    return ClientJob(device, task.model_dump_json(), **more)


def test_a_cohort_begins_when_it_is_full_or_an_outcome_is_needed() -> None:
    workers = Recorded()
    engine = CohortEngine(workers, size=2)
    handles = [engine.submit(job(name, seed=place)) for place, name in enumerate("abcde")]
    assert workers.begun == [["a", "b"], ["c", "d"]]
    assert engine.result(handles[3], timeout_s=0) == Outcome("d")
    assert len(workers.begun) == 2
    assert engine.result(handles[4], timeout_s=0) == Outcome("e")
    assert workers.begun[2:] == [["e"]]


def test_each_tier_has_cohorts_of_its_own() -> None:
    workers = Recorded()
    engine = CohortEngine(workers, size=3)
    handles = [engine.submit(job(name, tier=tier)) for name, tier in zip("abcd", (1, 2, 1, 2), strict=True)]
    engine.result(handles[0], timeout_s=0)
    assert workers.begun == [["a", "c"], ["b", "d"]]


def test_a_job_that_is_cancelled_in_time_is_in_no_cohort() -> None:
    workers = Recorded()
    engine = CohortEngine(workers, size=3)
    first, second, third = (engine.submit(job(name)) for name in "abc"[:2] + "x")
    assert workers.begun == [["a", "b", "x"]]
    last, dropped = engine.submit(job("c")), engine.submit(job("d"))
    engine.cancel(dropped)
    engine.result(last, timeout_s=0)
    assert workers.begun[1:] == [["c"]]
    for handle in (first, second):
        engine.cancel(handle)
    assert workers.cancelled == []
    engine.cancel(third)
    assert workers.cancelled == [["a", "b", "x"]]


def test_devices_without_torch_train_alone() -> None:
    assert cohort_kind(job("a", trainer="onnx")) is None
    assert cohort_kind(job("a", seed=1)) == cohort_kind(job("b", seed=2))
    assert cohort_kind(job("a", memory=10**9)) != cohort_kind(job("a"))


def state(out: Path) -> dict[str, np.ndarray]:
    return load(last_model(out))


def columns(out: Path, *names: str) -> list[list[Any]]:
    return [[line[name] for name in names] for line in history(out)]


@pytest.mark.parametrize(
    ("recipe", "settings", "cohorts"),
    [
        ("fedavg", ("simulation.clock=['pi-4']",), {4, 2}),
        slow("fedprox", ("momentum=0.9", "simulation.hold-out=0.2"), {4, 2}),
        slow("scaffold", ("simulation.hold-out=0.2",), {4, 2}),
        ("attending", ("model.name=two-nn", "tiers.ratios=[0.5,0.0]", "sam-radius=0"), {3}),
    ],
)
def test_a_run_in_cohorts_is_the_run_of_one_device_at_a_time(
    recipe: str, settings: tuple[str, ...], cohorts: set[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, sizes = (*ROUNDS, *SGD, *settings), list[int]()
    steps = CohortTraining.run
    monkeypatch.setattr(CohortTraining, "run", lambda self: sizes.append(len(self._clients)) or steps(self))
    run(tmp_path / "alone", recipe, *given, engine=None)
    run(tmp_path / "together", recipe, *given, "simulation.cohort=4", engine=None)
    ours, theirs = state(tmp_path / "together"), state(tmp_path / "alone")
    assert ours.keys() == theirs.keys()
    for name, array in theirs.items():
        np.testing.assert_allclose(ours[name], array, atol=CLOSE, err_msg=name)
    assert set(sizes) == cohorts
    who, when = (
        [columns(tmp_path / folder, *names) for folder in ("together", "alone")]
        for names in (("round", "completed", "selected"), ("virtual_time_s", "duration_s"))
    )
    assert who[0] == who[1]
    # A message is as long as the digits of its loss, which is rounded differently.
    np.testing.assert_allclose(*when, rtol=1e-4)


def test_the_number_of_workers_changes_no_bit(tmp_path: Path) -> None:
    given = (*ROUNDS, "tiers.ratios=[0.5,0.0]", "simulation.cohort=2")
    run(tmp_path / "one", "heterofl", *given, engine=None)
    run(tmp_path / "two", "heterofl", *given, "workers=2", engine=None)
    assert last_model(tmp_path / "one") == last_model(tmp_path / "two")


def test_a_run_goes_on_with_the_cohorts_that_it_had(tmp_path: Path) -> None:
    run(tmp_path / "run", "fedavg", *ROUNDS, "simulation.cohort=4", engine=None)
    with pytest.raises(ConfigError, match="cohort"):
        run(tmp_path / "run", "fedavg", *ROUNDS, "simulation.cohort=3", "rounds=3", resume=True, engine=None)
    run(tmp_path / "run", "fedavg", *ROUNDS, "simulation.cohort=4", "rounds=3", resume=True, engine=None)
    run(tmp_path / "whole", "fedavg", *ROUNDS, "simulation.cohort=4", "rounds=3", engine=None)
    assert last_model(tmp_path / "run") == last_model(tmp_path / "whole")


def test_a_device_that_fails_leaves_its_cohort_in_peace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = ClientWork._context

    def failing(self: ClientWork, job: ClientJob) -> Any:
        if job.device.endswith("1"):
            raise OSError("the disk is gone")
        return context(self, job)

    monkeypatch.setattr(ClientWork, "_context", failing)
    run(tmp_path / "run", "fedavg", *ROUNDS, "simulation.cohort=6", engine=None)
    for line in history(tmp_path / "run"):
        assert line["completed"] == [f"device-000{number}" for number in (2, 3, 4, 5, 6)]


def test_why_devices_train_one_by_one_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "_said", set())
    with caplog.at_level(logging.WARNING):
        run(tmp_path / "run", "fedgh", *ROUNDS, "simulation.cohort=6", engine=None)
    said = [record.getMessage() for record in caplog.records if "one by one" in record.getMessage()]
    assert said == ["devices train one by one: the objective Prototypes has a step of its own"]


def test_the_size_follows_from_the_configuration_alone() -> None:
    def size(*words: str) -> object:
        config = load_config("fedavg", ["data.source=digits", *words])
        data = training_data(config)
        return with_cohort_size(
            config, data, make_population(config, data.strata, data.origins)
        ).simulation.cohort

    assert size("model.name=mlp") == "auto"
    assert size("model.name=mlp", "device=cuda", "cohort=7") == 7
    large, small = (size(f"model.name={name}", "device=cuda") for name in ("mlp", "two-nn"))
    assert isinstance(small, int)
    assert isinstance(large, int)
    assert 1 < small <= large <= 256


def test_a_cluster_has_no_cohorts() -> None:
    with pytest.raises(ConfigError, match="cohort is for engine = 'local'"):
        load_config("fedavg", ["engine=ray", "cohort=2"])
