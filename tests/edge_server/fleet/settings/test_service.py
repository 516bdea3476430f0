"""`service.toml` is read with its federations, and mistakes are named."""

from pathlib import Path

import pytest

from edge_server.fleet.backup.sources import files_named_in
from edge_server.fleet.settings.alerts import WebhookReceiver
from edge_server.fleet.settings.service import load_service_settings
from schemas.errors import ConfigError

TWO = """
[[federations]]
name = "home"
broker = "mqtts://farm.lan:8883"
authority = "authority"

[[federations]]
name = "shop"
"""

PATHS = """
[[federations]]
ca = "/etc/ca.pem"
mosquitto-pid-file = "~/mosquitto.pid"

[page]
cert = "page.pem"
key = "page.key"

[alerts.receivers.ops]
kind = "webhook"
url = "https://ops.example/hook"
secret = "keys/hook.secret"
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "service.toml"
    path.write_text(text)
    return path


def test_a_federation_has_the_certificates_of_its_authority(tmp_path: Path) -> None:
    home = load_service_settings(written(tmp_path, TWO)).federation("home")
    assert home.tls("operator").certificate == tmp_path / "authority/operator/operator.pem"
    assert home.tls("fleet").ca == tmp_path / "authority/fleet/ca.pem"
    with pytest.raises(ConfigError, match=r"authority/fleet/ca.pem \(service.toml.*home: authority,"):
        home.address()


def test_every_path_counts_from_the_folder_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    settings = load_service_settings(written(tmp_path, PATHS))
    (served,), page, receiver = settings.federations, settings.page, settings.alerts.receivers["ops"]
    assert served.ca == Path("/etc/ca.pem")
    assert served.mosquitto_pid_file == tmp_path / "home/mosquitto.pid"
    assert (page.cert, page.key) == (tmp_path / "page.pem", tmp_path / "page.key")
    assert isinstance(receiver, WebhookReceiver)
    assert receiver.secret == tmp_path / "keys/hook.secret"
    for file in (page.cert, receiver.secret, served.mosquitto_pid_file):
        assert file is not None
        file.parent.mkdir(exist_ok=True)
        file.touch()
    assert [*files_named_in(settings)] == [receiver.secret, page.cert]


def test_the_only_federation_needs_no_name(tmp_path: Path) -> None:
    settings = load_service_settings(written(tmp_path, '[[federations]]\nname = "shop"\n'))
    assert settings.federation(None).address().port == 1883
    with pytest.raises(ConfigError, match=r"no federation 'hoem' \(known: shop\): .*federation.name=NAME"):
        settings.federation("hoem")
    with pytest.raises(ConfigError, match="--federation"):
        load_service_settings(written(tmp_path, TWO)).federation(None)
    with pytest.raises(ConfigError, match="names no federation"):
        load_service_settings(tmp_path / "missing.toml").federation(None)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('[federations]\nname = "home"\n', r"\[federations\] must be a list: a table .* two brackets"),
        ("[[federations]]\nbrokr = 'x'\n", "brokr"),
        ("[[federations]\n", "not valid TOML"),
        (TWO + '[[federations]]\nname = "shop"\n', "'shop' is named twice"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        load_service_settings(written(tmp_path, text))
