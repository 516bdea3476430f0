"""Which registry and which broker the verbs for models take."""

import argparse
from pathlib import Path

import pytest

from edge_server.cli.commands.models import USUAL, registry_folder
from edge_server.cli.commands.rollout import find_broker
from edge_server.cli.main import EDGE_SERVER
from edge_server.releases.registry.registry import Registry
from edge_server.storage.service_folder import ServiceFolder

SETTINGS = '[[federations]]\nname = "home"\nbroker = "mqtt://broker.lan:1884"\n'


def arguments(**given: object) -> argparse.Namespace:
    return argparse.Namespace(
        **{**dict.fromkeys(("registry", "service", "broker", "ca", "cert", "key")), **given}
    )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ServiceFolder:
    monkeypatch.delenv("EDGE_SERVICE", raising=False)
    made = ServiceFolder(tmp_path / "service")
    made.registry.mkdir(parents=True)
    made.settings.write_text(SETTINGS)
    return made


def test_the_registry_is_that_of_the_option_then_of_the_named_service_then_the_usual_one(
    folder: ServiceFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert registry_folder(arguments()) == USUAL
    assert registry_folder(arguments(service=folder.path)) == folder.registry
    monkeypatch.setenv("EDGE_SERVICE", str(folder.path))
    assert registry_folder(arguments()) == folder.registry
    assert registry_folder(arguments(registry=Path("mine"))) == Path("mine")
    folder.registry.rmdir()
    assert registry_folder(arguments()) == USUAL


def test_the_broker_is_that_of_the_option_then_of_the_registrys_service(folder: ServiceFolder) -> None:
    registry = Registry(folder.registry)
    assert find_broker(arguments(), registry, "home").host == "broker.lan"
    assert find_broker(arguments(broker="mqtt://other:1883"), registry, "home").host == "other"
    assert find_broker(arguments(), Registry(Path("runs/registry")), "home").host == "127.0.0.1"


def test_the_models_of_a_service_are_listed(
    folder: ServiceFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with Registry(folder.registry).database():
        pass
    monkeypatch.setenv("EDGE_SERVICE", str(folder.path))
    assert EDGE_SERVER.run(["models", "list"]) == 0
    assert "version" in capsys.readouterr().out
