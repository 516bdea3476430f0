"""What the rules find of all devices, runs and jobs at one moment. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from edge_server.fleet.alerts.facts import Facts
from edge_server.fleet.settings.alert_kinds import RULE_KINDS, Finding, Rule, Subject

Key = tuple[str, str, str, str]
"""The fingerprint of an alert: its rule, and the kind, federation and name of its subject."""


@dataclass(frozen=True)
class Evaluation:
    """What the rules found; alerts of a rule and federation in `unknown` stay as they are."""

    findings: Mapping[Key, tuple[Finding, Subject]]
    unknown: frozenset[tuple[str, str]] = frozenset()


def evaluate(rules: tuple[Rule, ...], facts: Facts, now: float) -> Evaluation:
    """Evaluate every rule for every subject that it chooses."""
    unknown = frozenset(
        (rule.name, federation)
        for rule in rules
        if RULE_KINDS[rule.when].of_presence
        for federation in facts.unheard
    )
    findings = {}
    for rule in rules:
        find = RULE_KINDS[rule.when].find
        for subject in facts.subjects:
            if (rule.name, subject.federation) in unknown:
                continue
            finding = find(subject, rule, now)
            if finding is not None and rule.where.matches(subject.labels):
                key = (rule.name, subject.kind, subject.federation, subject.name)
                findings[key] = finding, subject
    return Evaluation(findings, unknown)
