"""Which jobs make a cohort, and what becomes of the others."""

from dataclasses import replace

import numpy as np
import pytest

from edge_client.data.dataset import LabelledData
from edge_client.data.local import LocalData
from edge_client.training.cohort.jobs import CohortTrainer
from edge_client.training.results import TrainingStopped
from edge_client.training.trainer import Trained, TrainingJob, cohort_key
from schemas.errors import InvariantError
from schemas.submodel import SubModelSpec
from tests.edge_client.training.cohort.clients import alone, check_equal, jobs, network, plan, settled


def outcomes(given: list[TrainingJob]) -> list[Trained | Exception | None]:
    return [
        settled(each) if isinstance(each, Trained) else each for each in CohortTrainer().train_together(given)
    ]


class BrokenData(LabelledData):
    """Examples that cannot be read."""

    def inputs(self, *_: object) -> np.ndarray:
        """Fail."""
        raise OSError("the disk is gone")


def test_a_device_whose_data_fails_fails_alone() -> None:
    given = jobs("mlp", plan())
    broken = BrokenData(
        *(getattr(given[1].data.train, name) for name in ("images", "labels", "class_names", "preprocessing"))
    )
    given[1] = replace(given[1], data=LocalData(broken, given[1].data.held_out))
    first, failed, last = outcomes(given)
    assert isinstance(failed, OSError)
    for ours, job in ((first, given[0]), (last, given[2])):
        assert isinstance(ours, Trained)
        check_equal(ours, alone(job))


def test_a_device_that_diverges_leaves_the_others_as_they_are() -> None:
    given = jobs("mlp", plan())
    data = given[1].data
    given[1] = replace(
        given[1],
        data=LocalData(replace(data.train, images=data.train.images * np.float32(1e30)), data.held_out),
    )
    first, diverged, last = outcomes(given)
    assert isinstance(diverged, Trained)
    assert diverged.metrics.train_loss is None
    for ours, job in ((first, given[0]), (last, given[2])):
        assert isinstance(ours, Trained)
        check_equal(ours, alone(job))


def test_a_device_with_other_weights_than_the_task_says_fails_alone() -> None:
    given = jobs("mlp", plan())
    short = {name: array for name, array in given[0].received["model"].items() if name != "linear1.bias"}
    given[0] = replace(given[0], received={"model": short})
    failed, *others = outcomes(given)
    assert isinstance(failed, InvariantError)
    assert all(isinstance(each, Trained) for each in others)


def test_what_has_a_step_of_its_own_is_left_alone() -> None:
    for part in ("igfl", "distil", "prototypes"):
        assert outcomes(jobs("mlp", plan(part))) == [None] * 3


def test_a_device_without_examples_is_left_alone() -> None:
    first, empty, last = outcomes(jobs("mlp", plan(), (8, 0, 8)))
    assert empty is None
    assert isinstance(first, Trained)
    assert isinstance(last, Trained)


def test_a_single_device_is_left_alone() -> None:
    assert outcomes(jobs("mlp", plan(), (8,))) == [None]


def test_no_training_goes_on_when_it_is_to_stop() -> None:
    given = [replace(job, should_stop=lambda: True) for job in jobs("mlp", plan())]
    with pytest.raises(TrainingStopped):
        CohortTrainer().train_together(given)


def test_jobs_that_differ_in_data_and_seed_alone_have_one_key() -> None:
    tier = SubModelSpec(kept={name: tuple(range(100)) for name in network("mlp")[1].groups})
    first, second, *_ = jobs("mlp", plan())
    assert cohort_key(first) == cohort_key(second)
    for other in (
        jobs("mlp", plan(), spec=tier),
        jobs("mlp", plan(batch_size=5)),
        jobs("mlp", plan("prox")),
        jobs("two-nn", plan()),
        jobs("mlp", plan(), trained=("linear3.weight",)),
    ):
        assert cohort_key(other[1]) != cohort_key(second)
