"""The guide's examples on real data over a broker, with its files as they are printed there."""

import re
from pathlib import Path

import pytest

from edge_client.cli.main import main
from edge_client.data.source_options import Split
from edge_client.data.sources import load_source, part_of
from edge_client.inference.onnx_model import load_model
from edge_server.cli.demo import device_name
from edge_server.config.config import Config
from edge_server.config.load import load_config
from tests.integration.conftest import ONE_BROKER
from tests.integration.device_threads import devices
from tests.slow import mark_slow

ROOT = Path(__file__).parents[2]
DATA = ROOT.parent / "shared" / "data"
PAGE = ROOT / "deploy" / "docs" / "guides" / "data" / "tasks.md"


def printed(heading: str, folder: Path, *overrides: str) -> Config:
    """The first federation file below a heading of the page, with paths below the data's folder."""
    section = PAGE.read_text().split(f"## {heading}\n")[1]
    toml = re.search(r"```toml\n(.*?)```", section, re.DOTALL)
    assert toml is not None
    (folder / "federation.toml").write_text(toml[1])
    return load_config(str(folder / "federation.toml"), [*overrides, "federation.name=test"])


def served(folder: Path, index: int) -> Path:
    """The model file of a device."""
    return folder / "devices" / device_name(index) / "models" / "model.onnx"


@mark_slow
@ONE_BROKER
@pytest.mark.skipif(not (DATA / "occupancy").is_dir(), reason="the occupancy data is not here")
def test_whether_somebody_is_in_the_room(
    address, serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(DATA / "occupancy")
    config = printed("Example: is somebody in the room?", tmp_path)
    run = serve(of_part(config, "test"))
    with devices(of_part(config, "train"), address, tmp_path / "devices"):
        summary = run.finished()
    assert summary.outcome == "finished", summary.detail
    for index in (0, 4):
        model = load_model(served(tmp_path, index), threads=1)
        for name in ("datatest", "datatest2"):
            test = load_source(f"csv:{name}.txt?label=Occupancy&ignore=date")
            assert model.measure_examples(test.images, test.labels)["auroc"] > 0.99, (index, name)


@mark_slow
@ONE_BROKER
@pytest.mark.skipif(not (DATA / "fsdd").is_dir(), reason="the spoken digits are not here")
def test_spoken_digits(
    address, serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(DATA / "fsdd")
    # The whole takes minutes: `python -m tests.examples --only digits`.
    config = printed("Example: spoken digits", tmp_path, "rounds=2", "local-epochs=1")
    run = serve(config)
    with devices(config, address, tmp_path / "devices"):
        summary = run.finished()
    assert summary.outcome == "finished", summary.detail
    assert sum(device.metrics is not None for device in summary.devices) == 6
    assert main(["infer", str(served(tmp_path, 0)), "recordings/7_jackson_0.wav"]) == 0
    assert "7_jackson_0.wav" in capsys.readouterr().out


def of_part(config: Config, split: Split) -> Config:
    """The configuration with one part of its source."""
    assert config.data.source is not None
    source = part_of(config.data.source, split)
    return config.model_copy(update={"data": config.data.model_copy(update={"source": source})})
