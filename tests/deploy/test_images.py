"""The images and compose.yaml: users, health checks, options, ports."""

import json
import re
from typing import Any

import pytest

from edge_server.config.load import load_config
from tests.deploy.files import DEPLOY, documents, unknown_arguments, verbs

DOCKER = DEPLOY / "docker"
IMAGES = {"server": "edge-server", "client": "edge-client", "infer": "edge-client"}
DEVICES = [f"device-{number}" for number in range(1, 6)]


def instructions(name: str) -> list[tuple[str, str]]:
    """The instructions of a Dockerfile's last stage, with their arguments."""
    text = re.sub(r"\\\n\s*", " ", (DOCKER / f"{name}.Dockerfile").read_text())
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    start = max(index for index, line in enumerate(lines) if line.startswith("FROM"))
    return [(line.split(" ", 1)[0], line.split(" ", 1)[1]) for line in lines[start:]]


def last(name: str, instruction: str) -> str:
    return [argument for word, argument in instructions(name) if word == instruction][-1]


def composed() -> dict[str, Any]:
    (compose,) = documents(DOCKER / "compose.yaml")
    return dict(compose["services"])


def command_of(service: dict[str, Any]) -> tuple[str, list[str]] | None:
    """The service's command, if it is one of ours, with its arguments; otherwise None."""
    image = service["image"].partition(":")[0]
    if not image.startswith("edge-federation/"):
        return None
    return IMAGES[image.removeprefix("edge-federation/")], [str(word) for word in service["command"]]


@pytest.mark.parametrize("name", IMAGES)
def test_an_image_runs_as_an_ordinary_user_with_a_health_check(name):
    assert last(name, "USER") == "10001:10001"
    assert "CMD [" in last(name, "HEALTHCHECK")
    assert json.loads(last(name, "ENTRYPOINT")) == [IMAGES[name]]


@pytest.mark.parametrize("name", IMAGES)
def test_an_image_is_not_limited_to_one_architecture(name):
    assert "--platform=" not in (DOCKER / f"{name}.Dockerfile").read_text().replace("--platform linux", "")


@pytest.mark.parametrize("name", IMAGES)
def test_an_image_starts_an_existing_command(name):
    words = json.loads(last(name, "CMD"))
    assert words[0] in verbs(IMAGES[name])
    assert unknown_arguments(IMAGES[name], words) == []


def test_the_inference_image_does_not_contain_torch():
    text = (DOCKER / "infer.Dockerfile").read_text()
    assert re.findall(r"'\.(\[.*?\])?'", text) == ["[trust]"]


def test_the_options_in_compose_exist():
    ours = {name: found for name, service in composed().items() if (found := command_of(service))}
    assert set(ours) == {"server", "serve", *DEVICES}
    for name, (command, words) in ours.items():
        if words[0] in verbs(command):
            assert unknown_arguments(command, words) == [], name


def test_five_devices_share_the_data_and_have_different_tiers():
    devices = [composed()[name]["command"] for name in DEVICES]

    def value(words: list[str], option: str) -> str:
        return words[words.index(option) + 1]

    assert [value(words, "--share") for words in devices] == [f"{number}/5" for number in range(1, 6)]
    assert [value(words, "--tier") for words in devices] == ["1", "2", "3", "4", "5"]
    assert [value(words, "--device-id") for words in devices] == DEVICES


def test_services_are_reachable_from_this_machine_only_and_have_limits():
    for name, service in composed().items():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", [])), name
        assert service["mem_limit"], name
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name


def test_prometheus_scrapes_existing_services_on_open_ports():
    (prometheus,) = documents(DOCKER / "prometheus" / "prometheus.yml")
    targets = {job["job_name"]: job["static_configs"][0]["targets"] for job in prometheus["scrape_configs"]}
    assert targets == {
        "prometheus": ["127.0.0.1:9090"],
        "edge-server": [f"server:{last('server', 'EXPOSE')}"],
        "model-service": [f"serve:{last('infer', 'EXPOSE')}"],
    }
    assert {"serve", "server"} <= set(composed())
    words = composed()["server"]["command"]
    assert words[words.index("--metrics") + 1] == f"0.0.0.0:{last('server', 'EXPOSE')}"
    assert set(composed()["prometheus"]["networks"]) & set(composed()["server"]["networks"])
    assert "./prometheus:/etc/prometheus:ro" in composed()["prometheus"]["volumes"]


def test_grafana_uses_the_configured_data_source():
    (sources,) = documents(DOCKER / "grafana" / "provisioning" / "datasources" / "prometheus.yaml")
    (source,) = sources["datasources"]
    assert source["url"] == "http://prometheus:9090"
    for path in (DOCKER / "grafana" / "dashboards").glob("*.json"):
        panels = json.loads(path.read_text())["panels"]
        assert panels
        assert {panel["datasource"]["uid"] for panel in panels} == {source["uid"]}


@pytest.mark.parametrize("path", [DOCKER / "federation.toml", DEPLOY / "kubernetes" / "federation.toml"])
def test_a_federation_file_is_valid(path):
    assert load_config(str(path), []).clients.num_clients in (5, 100)
