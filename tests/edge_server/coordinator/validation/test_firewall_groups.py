"""The firewall's checks of further groups: only the strategy's groups pass, bounded like the model."""

import numpy as np
import pytest

from edge_server.coordinator.validation.contents import examine, max_answer_bytes
from edge_server.strategy.groups.registry import Control, LastStep, MeanData
from edge_server.strategy.groups.rule import MAX_ROWS
from schemas.errors import PeerError, Reason
from tests.edge_server.coordinator.validation.test_firewall import (
    CHOSEN,
    HONEST,
    HONEST_PERSONAL,
    MAP,
    PERSONAL,
    PREFIX,
    model,
    task,
    update,
)
from tests.groups import encode_groups

RULES = (Control(), MeanData())


def means(rows: int = 2, **changes) -> dict[str, np.ndarray]:
    return {
        "images": np.zeros((rows, 1, 8, 8), np.float32),
        "labels": np.full((rows, 3), 1 / 3, np.float32),
        **changes,
    }


def refused(groups, asked=None, rules=RULES) -> PeerError:
    with pytest.raises(PeerError) as error:
        examine(update(PREFIX), groups, asked or task(), MAP, rules)
    return error.value


def test_a_known_group_passes_and_may_be_left_out():
    examine(update(PREFIX), {**HONEST, "control": model(PREFIX), "mean-data": means()}, task(), MAP, RULES)
    examine(update(PREFIX), HONEST, task(), MAP, RULES)
    personal = {**HONEST_PERSONAL, "control": model(CHOSEN)}
    examine(update(CHOSEN), personal, task(PERSONAL), MAP, RULES)


@pytest.mark.parametrize("group", ["last-step", "contrl", "attention"])
def test_an_unrequested_group_is_refused(group):
    # IGFL's last step is sent to devices only; devices never send one.
    error = refused({**HONEST, group: model(PREFIX)}, rules=(*RULES, LastStep()))
    assert error.reason == Reason.WRONG_SHAPE


def test_a_group_in_the_coordinates_of_another_sub_model_is_refused():
    short = {name: array[:1] for name, array in model(PREFIX).items()}
    assert refused({**HONEST, "control": short}).reason == Reason.WRONG_SHAPE


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (means(rows=MAX_ROWS + 1), Reason.WRONG_SHAPE),
        (means(rows=0), Reason.WRONG_SHAPE),
        (means(labels=np.zeros((2, 4), np.float32)), Reason.WRONG_SHAPE),
        (means(images=np.zeros((2, 1, 8, 8))), Reason.WRONG_SHAPE),
        (means(more=np.zeros(1, np.float32)), Reason.WRONG_SHAPE),
        (means(labels=np.full((2, 3), np.nan, np.float32)), Reason.NOT_FINITE),
        (means(labels=np.full((2, 3), 1e7, np.float32)), Reason.OUT_OF_BOUNDS),
    ],
)
def test_further_arrays_are_bounded_like_the_model(sent, reason):
    assert refused({**HONEST, "mean-data": sent}).reason == reason


def test_the_bound_on_bytes_grows_with_the_allowed_groups():
    largest = {**HONEST, "control": model(PREFIX), "mean-data": means(rows=MAX_ROWS)}
    assert len(encode_groups(largest)) <= max_answer_bytes(task(), MAP, RULES)
    # 64 images of 64 pixels and 3 labels each, plus the model's count of numbers, 4 bytes per number.
    numbers = MAX_ROWS * (64 + 3) + sum(array.size for array in HONEST["model"].values())
    grown = max_answer_bytes(task(), MAP, RULES) - max_answer_bytes(task(), MAP)
    assert 4 * numbers <= grown <= 4 * numbers + 10_000


def test_only_the_requested_parameters_are_accepted():
    asked = task(trained=("conv.weight",), returned=("conv.weight",))
    examine(update(PREFIX), {"model": {"conv.weight": HONEST["model"]["conv.weight"]}}, asked, MAP)
    assert refused({"model": dict(HONEST["model"])}, asked).reason == Reason.WRONG_SHAPE


def test_only_the_requested_layers_are_accepted():
    asked = task(returned=("conv",))
    part = {name: array for name, array in HONEST["model"].items() if name.startswith("conv.")}
    examine(update(PREFIX), {"model": part}, asked, MAP)
    assert refused(HONEST, asked).reason == Reason.WRONG_SHAPE
    assert refused({"model": {"conv.weight": part["conv.weight"]}}, asked).reason == Reason.WRONG_SHAPE
