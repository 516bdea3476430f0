"""The Kubernetes manifests: requirements of every workload, and the broker's rules."""

import re
from pathlib import Path
from typing import Any

import pytest

from edge_server.security.identity.mosquitto import mosquitto_files as broker_files
from edge_server.security.identity.settings import AuthoritySettings
from tests.deploy.files import DEPLOY, documents, unknown_arguments

FOLDER = DEPLOY / "kubernetes"


def manifests() -> list[dict[str, Any]]:
    (kustomization,) = documents(FOLDER / "kustomization.yaml")
    return [document for name in kustomization["resources"] for document in documents(FOLDER / name)]


def workloads() -> dict[str, dict[str, Any]]:
    """The pod templates by name."""
    sets = [manifest for manifest in manifests() if manifest["kind"] == "StatefulSet"]
    return {item["metadata"]["name"]: item["spec"]["template"]["spec"] for item in sets}


def test_every_named_resource_exists():
    (kustomization,) = documents(FOLDER / "kustomization.yaml")
    files = [name for config_map in kustomization["configMapGenerator"] for name in config_map["files"]]
    assert files == ["acl.conf", "federation.toml"]
    assert all((FOLDER / name).is_file() for name in [*files, *kustomization["resources"]])


@pytest.mark.parametrize("name", ["emqx", "server"])
def test_a_workload_has_an_unprivileged_user_limits_and_probes(name):
    spec = workloads()[name]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert spec["automountServiceAccountToken"] is False
    (container,) = spec["containers"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert {"requests", "limits"} <= set(container["resources"])
    assert "memory" in container["resources"]["limits"]
    assert {"startupProbe", "livenessProbe"} <= set(container)


def test_written_folders_are_volumes():
    for manifest in manifests():
        if manifest["kind"] == "StatefulSet":
            assert manifest["spec"]["volumeClaimTemplates"]


def test_there_is_one_server_and_its_command_exists():
    sets = {
        manifest["metadata"]["name"]: manifest
        for manifest in manifests()
        if manifest["kind"] == "StatefulSet"
    }
    server = sets["server"]
    assert server["spec"]["replicas"] == 1
    (container,) = server["spec"]["template"]["spec"]["containers"]
    assert unknown_arguments("edge-server", container["args"]) == []
    assert container["image"].partition(":")[0] == "edge-federation/server"
    assert (DEPLOY / "docker" / "server.Dockerfile").is_file()


def test_the_broker_is_the_last_version_whose_licence_allows_a_cluster():
    image = workloads()["emqx"]["containers"][0]["image"]
    major, minor, _ = (int(part) for part in image.partition(":")[2].split("."))
    assert (major, minor) == (5, 8)


def test_the_broker_accepts_only_certificates():
    variables = {item["name"]: item.get("value") for item in workloads()["emqx"]["containers"][0]["env"]}
    assert variables["EMQX_LISTENERS__SSL__DEFAULT__SSL_OPTIONS__VERIFY"] == "verify_peer"
    assert variables["EMQX_LISTENERS__SSL__DEFAULT__SSL_OPTIONS__FAIL_IF_NO_PEER_CERT"] == "true"
    assert (variables["EMQX_MQTT__PEER_CERT_AS_USERNAME"], variables["EMQX_MQTT__PEER_CERT_AS_CLIENTID"]) == (
        "cn",
        "cn",
    )
    assert variables["EMQX_AUTHORIZATION__NO_MATCH"] == "deny"
    assert [variables[f"EMQX_LISTENERS__{kind}__DEFAULT__ENABLE"] for kind in ("TCP", "WS", "WSS")] == [
        "false"
    ] * 3


def test_traffic_is_denied_unless_allowed():
    policies = {
        manifest["metadata"]["name"]: manifest["spec"]
        for manifest in manifests()
        if manifest["kind"] == "NetworkPolicy"
    }
    assert policies["default-deny"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    (out,) = policies["server"]["egress"]
    assert out["ports"] == [{"protocol": "TCP", "port": 8883}]
    assert "ingress" not in policies["server"]


def mosquitto_rules() -> set[tuple[str, str, str]]:
    """(user, access, topic) of each rule that `edge-server enroll` writes for Mosquitto."""
    settings = AuthoritySettings(federation="federation", hosts=("broker",))
    rules, user = set(), ""
    for line in broker_files(settings, Path("/etc"))["acl"].splitlines():
        word, *rest = line.split()[:3] if line.strip() else [""]
        if word == "user":
            user = rest[0]
        elif word in ("topic", "pattern"):
            verbs = ("read", "write") if rest[0] == "readwrite" else (rest[0],)
            name = user if word == "topic" else "all"
            rules |= {(name, verb, rest[1].replace("%u", "${username}")) for verb in verbs}
    return rules


def test_the_rules_equal_those_for_mosquitto():
    found = set()
    for rule in re.findall(r"^\{allow, (.*?)\}\.$", (FOLDER / "acl.conf").read_text(), re.MULTILINE):
        user = match[1] if (match := re.match(r'\{username, "([\w-]+)"\}', rule)) else "all"
        verb = {"publish": "write", "subscribe": "read"}[re.search(r"publish|subscribe", rule)[0]]
        found |= {
            (user, verb, topic) for topic in re.findall(r'"((?:fed|homeassistant|spBv1\.0)/[^"]+)"', rule)
        }
    assert found == mosquitto_rules()
    assert (FOLDER / "acl.conf").read_text().rstrip().endswith("{deny, all}.")
