"""Recorded steps of ordered dropout: one recording per width, bit-identical to plain steps."""

from collections.abc import Callable, Mapping

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from edge_client.pruning.channel_graph.trace import trace_channels
from edge_client.training.loop import train
from edge_client.training.step_capture import Recorder, Recording
from schemas.strategy import Component, TrainingPlan
from tests.edge_client.training.test_step_capture import SHAPE, examples, named, normalised, plan
from tests.slow import slow

WIDTHS = {
    "mlp": {
        "0/linear1": np.arange(60, dtype=np.int32),
        "0/linear2": np.arange(60, dtype=np.int32),
        # Channels that are no run are copied, not viewed.
        "1/linear1": np.arange(0, 200, 2, dtype=np.int32),
    },
    "normalised": {"0/0": np.array([0, 2], np.int32)},
}
NETWORKS: Mapping[str, Callable[[], nn.Module]] = {"mlp": named("mlp"), "normalised": normalised}


def trained(
    name: str, module: nn.Module, how: TrainingPlan, recorder: Recorder | None
) -> tuple[dict[str, Tensor], float | None]:
    """The arrays after two rounds of ordered dropout, and the loss."""
    channel_map = trace_channels(NETWORKS[name](), SHAPE)
    given = {"received": {"widths": WIDTHS[name]}, "recorder": recorder, "channel_map": channel_map}
    for _ in range(2):
        result = train(module, examples(35), how, **given)  # type: ignore[arg-type]
    return module.state_dict(), result.metrics.train_loss


def dropout(**options: object) -> dict[str, object]:
    return {"objectives": (Component(name="ordered-dropout", options=options),), "local_epochs": 4}


@pytest.mark.parametrize(
    "how",
    [
        slow(plan(**dropout()), id="sgd"),
        slow(plan(**dropout(own=0.5), momentum=0.5), id="momentum"),
        pytest.param(plan(**dropout(own=0.5), momentum=0.5, sam_radius=0.1), id="sharp"),
    ],
)
@pytest.mark.parametrize("name", [slow("mlp"), "normalised"])
def test_recorded_widths_are_bit_identical_to_plain_ones(name: str, how: TrainingPlan) -> None:
    plain, loss = trained(name, NETWORKS[name](), how, None)
    module, recorder = NETWORKS[name](), Recorder()
    played, its_loss = trained(name, module, how, recorder)
    assert its_loss == loss
    assert all(torch.equal(played[array], plain[array]) for array in plain)
    made = list(recorder.recordings[module].values())
    widths = len({number.partition("/")[0] for number in WIDTHS[name]}) + 1
    # Sharpness-aware and plain steps have recordings of their own.
    widths *= 2 if how.sam_radius else 1
    # Batches of ten and of five, where the width was drawn for both; the second round records nothing anew.
    assert widths < len(made) <= 2 * widths
    assert all(isinstance(recording, Recording) for recording in made)


def test_distillation_is_more_than_a_choice_of_networks() -> None:
    module, recorder = NETWORKS["mlp"](), Recorder()
    trained("mlp", module, plan(**dropout(distil=0.5)), recorder)
    assert module not in recorder.recordings
