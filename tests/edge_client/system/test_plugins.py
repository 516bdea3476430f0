"""Components of installed packages."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from edge_client.system import plugins
from edge_client.system.plugins import Registry
from edge_server.cli.main import main
from edge_server.strategy.components import make_component
from schemas.errors import ConfigError
from schemas.strategy import Component
from tests.forked import forked_python

CODE = """
from edge_client.models.registry import ModelEntry
from edge_server.strategy.weighting.registry import Equal

class Halves(Equal):
    \"\"\"Weight all updates equally, in halves.\"\"\"

NETWORK = ModelEntry(factory="edge_client.models.cnn:MLP", summary="a network of a plugin")
"""
POINTS = """
[edge_federation.weighting]
halves = myplugin:Halves
equal = myplugin:Missing
broken = myplugin:Missing

[edge_federation.network]
tiny = myplugin:NETWORK
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on Python's path with an installed plugin package."""
    (tmp_path / "myplugin.py").write_text(CODE)
    info = tmp_path / "myplugin-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: myplugin\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(POINTS)
    monkeypatch.syspath_prepend(tmp_path)
    plugins.plugins.cache_clear()
    yield tmp_path
    plugins.plugins.cache_clear()
    sys.modules.pop("myplugin", None)


def test_plugins_are_listed_after_shipped_components_and_replace_none(site: Path) -> None:
    registry = Registry[object]("weighting", {"equal": int})
    assert list(registry) == ["equal", "broken", "halves"]
    assert registry["equal"] is int
    assert registry.origin("equal") == ""
    assert registry.origin("halves") == "myplugin 1.2"
    assert "halves" in registry
    assert "none" not in registry


def test_a_plugin_that_cannot_be_imported_is_named_with_its_package(site: Path) -> None:
    registry = Registry[type]("weighting", {})
    with pytest.raises(ConfigError, match=r"weighting 'broken' of myplugin 1\.2: .*Missing"):
        make_component("weighting", registry, Component(name="broken"))


def test_a_federation_uses_plugins_by_name(
    site: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["fedavg", "data.source=digits", "strategy.weighting=halves", "model.name=tiny", "num-clients=2"]
    words += ["rounds=1", "simulation.workers=1", "simulation.clock=[]", "--out", str(tmp_path / "run")]
    command = [*forked_python(), "-m", "edge_server.cli.main", "simulate", *words, "--format", "json"]
    environment = {**os.environ, "PYTHONPATH": f"{site}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=Path.cwd())
    assert done.returncode == 0, done.stderr
    assert main(["components", "weighting", "--format", "json"]) == 0
    # A component that cannot be imported is listed with the reason, and hides no other.
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["halves"]["from"] == "myplugin 1.2"
    assert "Missing" in rows["broken"]["summary"]
