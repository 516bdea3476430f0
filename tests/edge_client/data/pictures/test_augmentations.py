"""Random changes of pictures, along which their boxes move."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from edge_client.data.dataset import LabelledData, make_labelled_data
from edge_client.data.pictures.augmentations import AUGMENTATIONS, augment, mirrored
from edge_client.training import evaluation, loop
from edge_client.training.checkpoints import EpochCheckpoint
from edge_client.training.results import EpochReport
from edge_client.training.step_capture import Recorder
from schemas.strategy import TrainingPlan

COUNT, SIDES = 24, (32, 48)
COLOURS = np.array([[250, 30, 30], [30, 250, 30]], np.uint8)


def pictures(kind: type = np.uint8) -> LabelledData:
    """A red and a green rectangle in each picture, with their boxes; the last row is none."""
    random = np.random.default_rng(3)
    images = np.full((COUNT, 3, *SIDES), 60, np.uint8)
    labels = np.zeros((COUNT, 3, 5), np.float32)
    labels[:, 2, 0] = -1
    for image, rows in zip(images, labels, strict=True):
        for number, left in enumerate((2, 26)):
            x, y = random.integers(left, left + 8), random.integers(2, 14)
            width, height = random.integers(8, 13, 2)
            image[:, y : y + height, x : x + width] = COLOURS[number][:, None, None]
            rows[number] = number, x, y, x + width, y + height
    return make_labelled_data(images.astype(kind), labels, class_names=("red", "green"))


def drawn(image: np.ndarray, number: int) -> np.ndarray:
    """Where a picture shows the class: its colour is far stronger than the other one."""
    strong, weak = (image[n].astype(float) for n in (number, 1 - number))
    return strong > weak + 60


@pytest.mark.parametrize("name", AUGMENTATIONS)
@pytest.mark.parametrize("kind", [np.uint8, np.float32])
def test_boxes_hold_what_they_held(name: str, kind: type) -> None:
    data = pictures(kind)
    before = data.images.copy(), data.labels.copy()
    found = augment(data, (name,), seed=1, step=0)
    assert (found.images.shape, found.images.dtype) == (data.images.shape, data.images.dtype)
    assert (found.images != data.images).any()
    assert (data.images == before[0]).all()
    assert (data.labels == before[1]).all()
    seen = 0
    for image, rows in zip(found.images, found.labels, strict=True):
        covered = [np.zeros(SIDES, bool) for _ in range(2)]
        for number, *corners in rows[rows[:, 0] >= 0]:
            left, top, right, bottom = np.round(corners).astype(int)
            assert 0 <= left < right <= SIDES[1]
            assert 0 <= top < bottom <= SIDES[0]
            inside = drawn(image, int(number))[top:bottom, left:right]
            assert inside.mean() > (0.65 if min(inside.shape) < 8 else 0.8)
            covered[int(number)][max(0, top - 1) : bottom + 1, max(0, left - 1) : right + 1] = True
            seen += 1
        if name in ("flip", "colour"):
            assert not any((drawn(image, n) & ~covered[n]).any() for n in range(2))
    assert seen >= COUNT
    assert (found.labels[found.labels[:, :, 0] < 0][:, 1:] == 0).all()


def test_a_mirrored_picture_is_worked_by_hand() -> None:
    image = np.arange(32, dtype=np.uint8).reshape(1, 1, 4, 8)
    data = make_labelled_data(image, np.array([[[0, 1, 0, 3, 2]]], np.float32))
    both = [augment(data, ("flip",), seed=0, step=step) for step in range(20)]
    turned = [each for each in both if (each.images == image[..., ::-1]).all()]
    assert 0 < len(turned) < 20
    assert turned[0].labels.tolist() == [[[0, 5, 0, 7, 2]]]
    assert all((each.images == image).all() for each in both if each not in turned)


def test_mirror_images_are_worked_by_hand() -> None:
    image = np.arange(32, dtype=np.uint8).reshape(1, 1, 4, 8)
    boxes = np.array([[[0, 1, 0, 3, 2], [-1, 0, 0, 0, 0]]], np.float32)
    data = make_labelled_data(image, boxes)
    found = mirrored(data, ("left-right", "up-down"))
    wanted = [image, image[..., ::-1], image[..., ::-1, :], image[..., ::-1, ::-1]]
    assert (found.images == np.concatenate(wanted)).all()
    assert found.labels[:, 0].tolist() == [[0, 1, 0, 3, 2], [0, 5, 0, 7, 2], [0, 1, 2, 3, 4], [0, 5, 2, 7, 4]]
    assert (found.labels[:, 1] == [-1, 0, 0, 0, 0]).all()
    once = mirrored(data, ("up-down", "up-down"))
    assert (once.images == found.images[[0, 2]]).all()
    assert mirrored(classes(), ("left-right",)).labels.tolist() == [0, 1] * COUNT


def test_what_leaves_the_picture_is_gone() -> None:
    data = pictures()
    found = [augment(data, ("scale",), seed=0, step=step).labels for step in range(8)]
    kept = np.concatenate(found)[:, :, 0] >= 0
    assert 0.5 < kept[:, :2].mean() < 1
    assert not kept[:, 2].any()


def test_changes_are_those_of_the_seed_and_the_step() -> None:
    data, names = pictures(), tuple(AUGMENTATIONS)
    first, again, other = (augment(data, names, seed=4, step=step) for step in (2, 2, 3))
    assert (first.images == again.images).all()
    assert (first.labels == again.labels).all()
    assert (first.images != other.images).any()


def classes() -> LabelledData:
    data = pictures()
    return replace(data, labels=np.arange(COUNT) % 2)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 5, 4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 7 * 11, 2))


def trained(plan: TrainingPlan, **options: object) -> dict[str, torch.Tensor]:
    module = network()
    loop.train(module, classes(), plan, **options)
    return module.state_dict()


PLAN = TrainingPlan(learning_rate=0.05, batch_size=7, local_epochs=3, augment=("flip", "colour"), seed=5)


def test_training_sees_changed_pictures_and_repeats_to_the_bit() -> None:
    plain, first, recorded = (
        trained(PLAN.model_copy(update={"augment": ()})),
        trained(PLAN),
        trained(PLAN, recorder=Recorder()),
    )
    assert all(map(torch.equal, first.values(), recorded.values()))
    assert not all(map(torch.equal, first.values(), plain.values()))


def test_a_resumed_training_goes_on_with_the_same_changes(tmp_path: Path) -> None:
    class Stopped(Exception):
        pass

    def stop(report: EpochReport) -> None:
        if report.epoch == 2:
            raise Stopped

    def checkpoint() -> EpochCheckpoint:
        return EpochCheckpoint(tmp_path / "checkpoint", "key", interval_s=0)

    with pytest.raises(Stopped):
        trained(PLAN, checkpoint=checkpoint(), on_epoch=stop)
    resumed = trained(PLAN, checkpoint=checkpoint())
    assert all(map(torch.equal, resumed.values(), trained(PLAN).values()))


def test_frozen_layers_run_in_every_step() -> None:
    task = classes().learning_task
    assert evaluation.why_whole((), task, ("flip",)) == "augmented pictures are new in every epoch"
    plan, frozen = PLAN, ("3.weight", "3.bias")
    args = (network(), frozen, (3, *SIDES), plan, classes())
    assert evaluation.split_for(*args) is None
