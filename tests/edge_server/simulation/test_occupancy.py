"""The guide's example of a room: devices with parts of a week learn whether somebody is there."""

from pathlib import Path

import pytest

from edge_client.data.sources import load_source
from edge_client.inference.onnx_model import load_model
from edge_server.config.load import load_config
from edge_server.simulation.simulator import simulate
from tests.edge_server.simulation.small import Quiet
from tests.slow import mark_slow

ROOM = Path(__file__).parents[4] / "shared" / "data" / "occupancy"
OPTIONS = "?label=Occupancy&ignore=date"


@mark_slow
@pytest.mark.skipif(not ROOM.is_dir(), reason="the occupancy data is not here")
def test_the_smallest_model_knows_whether_somebody_is_in_the_room(tmp_path: Path) -> None:
    settings = {
        "model.name": "mlp",
        "data.source": f"csv:{ROOM / 'datatraining.txt'}{OPTIONS}",
        "data.partition": "blocks",
        "num-clients": 5,
        "rounds": 10,
        "local-epochs": 1,
        "learning-rate": 0.05,
        "weight-decay": 0.03,
    }
    config = load_config("attending", [f"{key}={value}" for key, value in settings.items()])
    simulate(config, out=tmp_path / "run", watcher=Quiet())
    for tier in (1, 5):
        model = load_model(tmp_path / "run" / "onnx" / f"tier-{tier}.onnx", threads=1)
        for name in ("datatest", "datatest2"):
            test = load_source(f"csv:{ROOM / name}.txt{OPTIONS}")
            assert model.measure_examples(test.images, test.labels)["auroc"] > 0.99, (tier, name)
