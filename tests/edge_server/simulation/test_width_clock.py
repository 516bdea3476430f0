"""The virtual clock counts a step of a smaller tier, and of a part of the network, as what it takes."""

from pathlib import Path

import pytest

from edge_server.config.load import load_config
from edge_server.coordinator.tier_assignment import WidthWork
from edge_server.simulation.clock import Work
from edge_server.simulation.simulator import simulate, task_work
from schemas.submodel import SubModelSpec
from tests.edge_server.simulation.in_process import in_process
from tests.edge_server.simulation.small import Quiet, history
from tests.integration.bench import Bench


def test_a_mean_step_takes_less_than_a_whole_one_once_smaller_tiers_are_trained(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "attending", "model.name=mlp", "tiers.ratios=[0.5, 0.0]")
    work, channels = WidthWork(bench.coordinator.model), bench.coordinator.context.channel_map
    whole = work.macs(SubModelSpec())
    # In round one the device scores the whole network and trains all of it.
    assert task_work(bench.tasks(1, 1)["strong"], work=work, channel_map=channels) == Work(whole, whole)
    bench.round(1)
    found = task_work(bench.tasks(2, 2)["strong"], work=work, channel_map=channels)
    small = work.macs(bench.coordinator.model.tier_specs()[1])
    assert found == Work(round(0.5 * whole + 0.5 * small))
    delivered = bench.tasks(3, 3, deliver=True)["strong"]
    assert task_work(delivered, work=work, channel_map=channels) == Work(whole)


FROZEN, HEAD = 64 * 200 + 200 * 200, 200 * 10  # of `mlp` on digits


@pytest.mark.parametrize(
    ("words", "work"),
    [
        (["training.train=head"], Work(HEAD, once=FROZEN)),
        # Other tiers train what this one leaves as it is.
        (['tiers.train=["all", "head"]'], Work(HEAD, FROZEN)),
        (["training.train=head", "training.feature-cache-mb=0"], Work(FROZEN + HEAD)),
    ],
)
def test_a_step_takes_what_follows_the_frozen_layers(words: list[str], work: Work, tmp_path: Path) -> None:
    bench = Bench(tmp_path, "fedavg", "model.name=mlp", "tiers.ratios=[0.0, 0.0]", *words)
    count = WidthWork(bench.coordinator.model)
    channels = bench.coordinator.context.channel_map
    assert task_work(bench.tasks(1, 1)["strong"], work=count, channel_map=channels) == work


def test_frozen_layers_run_in_the_first_round_of_a_device(tmp_path: Path) -> None:
    words = ["model.name=mlp", "data.source=digits", "num-clients=2", "rounds=3", "training.train=head"]
    config = load_config("fedavg", [*words, "deliver=none", 'simulation.clock=["pi-4"]'])
    with in_process():
        simulate(config, out=tmp_path / "run", watcher=Quiet(), export=False)
    first, second, third = (line["duration_s"] for line in history(tmp_path / "run"))
    assert first > second == pytest.approx(third)
