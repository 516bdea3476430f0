"""Grafana's and Prometheus' expressions use existing metrics, and every alert rule is tested."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("prometheus_client")

from prometheus_client.parser import text_string_to_metric_families

from edge_client.inference.service.metrics import RequestMetrics
from edge_server.observability.prometheus.collector import RunCollector, exposition, run_registry
from tests.deploy.files import DEPLOY, documents, objects
from tests.edge_server.observability.prometheus.running import PROMTOOL, busy

DOCKER = DEPLOY / "docker"
PROMETHEUS = DOCKER / "prometheus"
DASHBOARDS = sorted((DOCKER / "grafana" / "dashboards").glob("*.json"))
KEYWORDS = {"and", "or", "unless", "by", "on", "without", "ignoring", "group_left", "group_right", "bool"}
GROUPING = r"\b(?:by|on|without|ignoring|group_left|group_right)\s*\([^)]*\)"


def named(expression: str) -> set[str]:
    """The metrics in a PromQL expression, without its functions, labels, keywords, strings and durations."""
    bare = re.sub(r'"[^"]*"|\'[^\']*\'', "", expression)
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]", "", bare)
    bare = re.sub(GROUPING, "", bare)
    words = re.findall(r"\b([a-zA-Z_:][\w:]*)\b(?!\s*\()", bare)
    return set(words) - KEYWORDS


def exported_samples(out: Path) -> dict[str, set[str]]:
    """The label names of every exported sample."""
    collector = RunCollector(out)
    collector.show(busy())
    tally = RequestMetrics()
    tally.request("http", "ok")
    tally.count_prediction(1, 0.01)
    tally.reload("ok")
    texts = [exposition(run_registry(collector))[1].decode(), tally.text({"version": "v"})]
    found: dict[str, set[str]] = {"up": set()}
    for text in texts:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                found.setdefault(sample.name, set()).update(sample.labels)
    return found


def expressions(path: Path) -> Iterator[str]:
    """The PromQL expressions of a dashboard or a rule file."""
    document = json.loads(path.read_text()) if path.suffix == ".json" else documents(path)[0]
    for mapping in objects(document):
        if isinstance(mapping.get("expr"), str):
            yield mapping["expr"]


def test_the_names_of_an_expression_are_found() -> None:
    expression = (
        'sum by (job, le) (rate(a_total{b="c", d=~"e|f"}[5m])) > 0.5 '
        "and on (g) max_over_time(h:i[6h]) unless j == 1"
    )
    assert named(expression) == {"a_total", "h:i", "j"}


@pytest.mark.parametrize("path", [*DASHBOARDS, PROMETHEUS / "alerts.yml"], ids=lambda path: path.name)
def test_dashboards_and_alerts_use_existing_metrics(path: Path, tmp_path: Path) -> None:
    known = exported_samples(tmp_path)
    used = list(expressions(path))
    assert used
    for expression in used:
        names = named(expression)
        assert names, expression
        assert names <= set(known), expression


@pytest.mark.parametrize("path", [*DASHBOARDS, PROMETHEUS / "alerts.yml"], ids=lambda path: path.name)
def test_dashboards_and_alerts_use_existing_labels(path: Path, tmp_path: Path) -> None:
    known = exported_samples(tmp_path)
    for expression in expressions(path):
        for name, matchers in re.findall(r"([\w:]+)\{([^}]*)\}", expression):
            labels = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers))
            assert labels <= known[name] | {"job", "instance"}, expression


def test_a_dashboard_has_the_fields_that_grafana_requires() -> None:
    (provider,) = documents(DOCKER / "grafana" / "provisioning" / "dashboards" / "edge-federation.yaml")
    (compose,) = documents(DOCKER / "compose.yaml")
    assert (
        f"./grafana/dashboards:{provider['providers'][0]['options']['path']}:ro"
        in (compose["services"]["grafana"]["volumes"])
    )
    uids = [json.loads(path.read_text())["uid"] for path in DASHBOARDS]
    assert len(set(uids)) == len(uids) >= 2
    for path in DASHBOARDS:
        panels = json.loads(path.read_text())["panels"]
        assert [panel["id"] for panel in panels] == list(range(1, len(panels) + 1))
        for panel in panels:
            place = panel["gridPos"]
            assert place["x"] + place["w"] <= 24
            overlapping = [
                other["title"]
                for other in panels
                if other is not panel
                and abs(other["gridPos"]["x"] + other["gridPos"]["w"] / 2 - place["x"] - place["w"] / 2)
                < (other["gridPos"]["w"] + place["w"]) / 2
                and abs(other["gridPos"]["y"] + other["gridPos"]["h"] / 2 - place["y"] - place["h"] / 2)
                < (other["gridPos"]["h"] + place["h"]) / 2
            ]
            assert overlapping == [], panel["title"]


def test_every_alert_has_a_remedy_and_is_tested_firing_and_silent() -> None:
    (config,) = documents(PROMETHEUS / "prometheus.yml")
    assert config["rule_files"] == ["alerts.yml"]
    (rules,) = documents(PROMETHEUS / "alerts.yml")
    (tests,) = documents(PROMETHEUS / "alerts.test.yml")
    alerts = {rule["alert"]: rule for group in rules["groups"] for rule in group["rules"]}
    tried = [case for test in tests["tests"] for case in test["alert_rule_test"]]
    assert {case["alertname"] for case in tried if case["exp_alerts"]} == set(alerts)
    for rule in alerts.values():
        assert set(rule["annotations"]) == {"summary", "description"}
        assert rule["labels"]["severity"] in ("warning", "critical")


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed: apt-get install prometheus")
@pytest.mark.parametrize(
    "words", [("check", "config", "prometheus.yml"), ("test", "rules", "alerts.test.yml")], ids=" ".join
)
def test_promtool_accepts_the_rules_and_their_tests_pass(words: tuple[str, ...]) -> None:
    completed = subprocess.run([str(PROMTOOL), *words], capture_output=True, text=True, cwd=PROMETHEUS)
    assert completed.returncode == 0, completed.stdout + completed.stderr
