"""The Kubernetes manifests: requirements of every workload, and the broker's rules."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from edge_server.security.identity.mosquitto import mosquitto_files as broker_files
from edge_server.security.identity.settings import AuthoritySettings
from tests.deploy.files import DEPLOY, documents, unknown_arguments

FOLDER = DEPLOY / "kubernetes"


STANDBY, GATEWAY = FOLDER / "standby", FOLDER / "gateway"


def manifests(folder: Path = FOLDER) -> list[dict[str, Any]]:
    (kustomization,) = documents(folder / "kustomization.yaml")
    return [document for name in kustomization["resources"] for document in documents(folder / name)]


def workloads() -> dict[str, dict[str, Any]]:
    """The pod templates by name."""
    found = [manifest for folder in (FOLDER, STANDBY, GATEWAY) for manifest in manifests(folder)]
    sets = [manifest for manifest in found if manifest["kind"] == "StatefulSet"]
    return {item["metadata"]["name"]: item["spec"]["template"]["spec"] for item in sets}


@pytest.mark.parametrize(
    ("folder", "files"),
    [(FOLDER, ["acl.conf", "federation.toml"]), (STANDBY, ["federation.toml"]), (GATEWAY, [])],
)
def test_every_named_resource_exists(folder, files):
    (kustomization,) = documents(folder / "kustomization.yaml")
    maps = kustomization.get("configMapGenerator", [])
    assert [name for config_map in maps for name in config_map["files"]] == files
    patches = [patch["path"] for patch in kustomization.get("patches", []) if "path" in patch]
    assert all((folder / name).is_file() for name in [*files, *patches, *kustomization["resources"]])


@pytest.mark.parametrize("name", ["emqx", "server", "standby", "gateway"])
def test_a_workload_has_an_unprivileged_user_limits_and_probes(name):
    spec = workloads()[name]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert spec["automountServiceAccountToken"] is False
    for container in [*spec["containers"], *spec.get("initContainers", [])]:
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert {"requests", "limits"} <= set(container["resources"])
        assert "memory" in container["resources"]["limits"]
    assert all({"startupProbe", "livenessProbe"} <= set(container) for container in spec["containers"])


@pytest.mark.parametrize("name", ["standby", "gateway"])
def test_its_command_exists(name):
    container = workloads()[name]["containers"][-1]
    assert container["args"][0] == name
    assert unknown_arguments("edge-server", container["args"]) == []


def test_a_standby_and_its_server_differ_from_a_server_alone_in_what_the_lease_needs():
    (patch,) = documents(STANDBY / "server-patch.yaml")
    (active,), standby = (
        patch["spec"]["template"]["spec"]["containers"],
        workloads()["standby"]["containers"][0],
    )
    alone = workloads()["server"]["containers"][0]["args"]
    assert [arg.replace("/etc/edge-tls/server/", "/etc/edge-tls/") for arg in active["args"]] == alone
    assert set(active["args"]) & set(standby["args"]) == {
        arg for arg in active["args"] if arg.startswith("--")
    }
    # Each has a certificate of its own for the lease, beside the server's; both have the key.
    for container, own in ((active, "lease"), (standby, "standby")):
        places = {mount["mountPath"] for mount in container["volumeMounts"]}
        assert {"/etc/edge-tls/server", f"/etc/edge-tls/{own}", "/run/edge-signing"} <= places
    text = (STANDBY / "federation.toml").read_text()
    key = 'signing-key = "/run/edge-signing/signing.key"\n'
    assert text.replace(key, "") == (FOLDER / "federation.toml").read_text()
    assert key in text


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl renders the manifests")
def test_the_component_fits_the_manifests(tmp_path):
    shutil.copytree(FOLDER, tmp_path / "kubernetes")
    file = tmp_path / "kubernetes" / "kustomization.yaml"
    file.write_text(file.read_text().replace("# components: [standby]", "components: [standby]"))
    rendered = subprocess.run(
        ["kubectl", "kustomize", file.parent], capture_output=True, text=True, check=True
    )
    sets = {
        item["metadata"]["name"]: item
        for item in yaml.safe_load_all(rendered.stdout)
        if item["kind"] == "StatefulSet"
    }
    assert sets.keys() == {"emqx", "server", "standby"}
    assert {item["spec"]["replicas"] for item in sets.values()} == {1}
    mounts = sets["server"]["spec"]["template"]["spec"]["containers"][0]["volumeMounts"]
    assert "/etc/edge-tls" not in {mount["mountPath"] for mount in mounts}


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
