"""The sections `[home-assistant]` and `[sparkplug]`: off by default, checked like the others."""

from pathlib import Path

import pytest

from edge_client.transport.broker_link import TlsFiles, parse_address
from edge_server.cli.main import main
from edge_server.config.load import check_config
from edge_server.observability.integrations.open import open_bridges
from edge_server.security.identity.settings import service_broker_address
from schemas.errors import ConfigError


def test_both_are_off_by_default(tmp_path: Path) -> None:
    config = check_config({}, "file")
    assert (config.home_assistant.discovery, config.sparkplug.group) == (False, None)
    # An opened bridge would have a thread, a link and a folder for its numbers.
    with open_bridges(config, parse_address("mqtt://127.0.0.1:1"), tmp_path / "registry") as watcher:
        assert watcher.watchers == ()
    assert list(tmp_path.iterdir()) == []


def test_written_settings_are_read(tmp_path, capsys) -> None:
    path = tmp_path / "federation.toml"
    path.write_text('[home-assistant]\ndiscovery = true\nprefix = "ha"\n[sparkplug]\ngroup = "Plant"\n')
    assert main(["check", str(path)]) == 0
    printed = capsys.readouterr().out
    assert '[home-assistant]\ndiscovery = true\nprefix = "ha"\nwatch-s = 300.0\n' in printed
    assert '[sparkplug]\ngroup = "Plant"\n' in printed


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ({"home-assistant": {"discovry": True}}, "unknown key 'discovry' (did you mean 'discovery'?)"),
        ({"home-assistant": {"prefix": "home/#"}}, "[home-assistant] prefix"),
        ({"home-assistant": {"prefix": ""}}, "[home-assistant] prefix"),
        ({"sparkplug": {"group": "a/b"}}, "[sparkplug] group"),
        ({"sparkplug": {"grup": "a"}}, "unknown key 'grup' (did you mean 'group'?)"),
    ],
)
def test_wrong_keys_are_refused(table, problem) -> None:
    with pytest.raises(ConfigError) as refused:
        check_config(table, "file")
    assert problem in str(refused.value)


def test_each_bridge_uses_its_own_certificate_from_the_folder_next_to_the_server_folder(
    tmp_path: Path,
) -> None:
    for place in ("server", "home"):
        (tmp_path / place).mkdir()
        for name in ("ca.pem", f"{place}.pem", f"{place}.key"):
            (tmp_path / place / name).write_text("x")
    own = tmp_path / "server"
    files = TlsFiles(own / "ca.pem", own / "server.pem", own / "server.key")
    address = parse_address("mqtts://broker", files)
    found = service_broker_address(address, "home", None, section="home-assistant")
    assert found.tls.certificate == tmp_path / "home" / "home.pem"
    assert service_broker_address(address, "home", tmp_path, section="home-assistant") == found
    with pytest.raises(ConfigError, match=r"\[sparkplug\] there is no .*sparkplug/ca.pem"):
        service_broker_address(address, "sparkplug", None, section="sparkplug")
    plain = parse_address("mqtt://broker")
    assert service_broker_address(plain, "home", None, section="home-assistant") is plain
