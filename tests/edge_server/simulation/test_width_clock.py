"""The virtual clock counts a step of a smaller tier as what it takes."""

from pathlib import Path

from edge_server.coordinator.tier_assignment import WidthWork
from edge_server.simulation.simulator import task_macs
from schemas.submodel import SubModelSpec
from tests.integration.bench import Bench


def test_a_mean_step_takes_less_than_a_whole_one_once_smaller_tiers_are_trained(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "attending", "model.name=mlp", "tiers.ratios=[0.5, 0.0]")
    work, channels = WidthWork(bench.coordinator.model), bench.coordinator.context.channel_map
    whole = work.macs(SubModelSpec())
    # In round one the device scores the whole network and trains all of it.
    assert task_macs(bench.tasks(1, 1)["strong"], work=work, channel_map=channels) == (whole, whole)
    bench.round(1)
    macs, scored = task_macs(bench.tasks(2, 2)["strong"], work=work, channel_map=channels)
    small = work.macs(bench.coordinator.model.tier_specs()[1])
    assert (macs, scored) == (round(0.5 * whole + 0.5 * small), 0)
    delivered = bench.tasks(3, 3, deliver=True)["strong"]
    assert task_macs(delivered, work=work, channel_map=channels) == (whole, 0)
