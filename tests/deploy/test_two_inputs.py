"""The page on networks with a picture and numbers: from training to an answer of the service."""

import json
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from edge_client.inference.onnx_model import load_model
from edge_client.inference.service.requests import read_request
from edge_server.config.load import load_config
from edge_server.simulation.simulator import simulate
from tests.deploy.pages import DOCS, write_files
from tests.deploy.test_tutorial import Unwatched
from tests.edge_server.simulation.in_process import in_process

PAGE = DOCS / "guides" / "data" / "two-inputs.md"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with only the page's files."""
    write_files(PAGE, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("pumps", None)


@in_process()
def test_both_inputs_are_trained_pruned_exported_and_served(folder: Path) -> None:
    config = load_config("federation.toml", ["workers=1", "federation.rounds=6"])
    summary = simulate(config, out=folder / "run", watcher=Unwatched())
    # With four classes either input alone gives one half.
    assert (summary.test_accuracy or 0) > 0.6
    models = {tier: load_model(folder / "run" / "onnx" / f"tier-{tier}.onnx", threads=1) for tier in (1, 2)}
    small, large = ((folder / "run" / "onnx" / f"tier-{tier}.onnx").stat().st_size for tier in (1, 2))
    assert small < 0.5 * large
    images, labels = import_module("pumps").data()
    assert (models[1].answers(images, labels).outputs.argmax(1) == labels).mean() > 0.6
    # The service takes the picture with its planes, and each of the two inputs changes the answer.
    body = json.dumps({"pixels": images[:1].tolist()}).encode()
    (served,) = models[1].logits(read_request(body, models[1]).images)
    assert served == pytest.approx(models[1].logits(images[:1])[0], rel=1e-5)
    for planes in (slice(0, 1), slice(1, 3)):
        other = np.array(images[:1])
        other[:, planes] = -other[:, planes]
        assert not np.allclose(models[1].logits(other)[0], served)
