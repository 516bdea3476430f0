"""The table `[alerts]` of service.toml: which states of devices, rounds and jobs become alerts, for whom."""

from collections import Counter
from collections.abc import Mapping
from typing import Any, Self

from pydantic import Field, field_validator, model_validator

from edge_server.fleet.settings.alert_kinds import RULE_KINDS, Rule, Severity
from edge_server.fleet.settings.alert_receivers import RECEIVER_KINDS, Duration, Receiver, lasting
from schemas.base import Settings
from schemas.errors import ConfigError, nearest
from schemas.labels import parse_where
from schemas.names import Name


class RuleSettings(Settings):
    """A rule; it holds for each device, run or job that `where` chooses."""

    when: str
    """What raises the alert: one of the kinds below."""
    value: str | int | float | None = None
    """Threshold, with its unit: a duration, size, temperature, share or count; each kind has a default."""
    name: Name | None = None
    """Name of the rule; by default that of its kind."""
    where: str = ""
    """Label selector of devices, such as `site=barn`; every device without one."""
    severity: Severity = "warning"
    """How urgent the alert is."""
    for_: Duration = lasting("0s", alias="for")
    """How long the state must last before the alert is raised, and be over before it is resolved."""
    repeat: Duration = lasting("24h")
    """How often an alert that is not resolved is sent again."""
    within: Duration = lasting("24h")
    """How far refusals, failed rounds, failed jobs and rollouts are looked back at."""
    to: tuple[str, ...] | None = None
    """Names of receivers; all of them without it."""

    @field_validator("when")
    @classmethod
    def _check_when(cls, when: str) -> str:
        if when not in RULE_KINDS:
            raise ValueError(f"there is no kind of rule '{when}'{nearest(when, RULE_KINDS)}")
        return when

    @model_validator(mode="after")
    def _readable(self) -> Self:
        try:
            self.threshold()
            parse_where(self.where)
        except ConfigError as error:
            raise ValueError(str(error)) from None
        if self.repeat < 60:
            raise ValueError(f'repeat: {self.repeat:g} s is less than a minute: write for instance "4h"')
        return self

    @property
    def title(self) -> str:
        """The rule's name."""
        return self.name or self.when

    def threshold(self) -> float:
        """The value in its base unit, or the kind's default; raises `ConfigError`."""
        kind = RULE_KINDS[self.when]
        if self.value is None:
            return kind.threshold(kind.default) if kind.value else 0.0
        if not kind.value:
            raise ConfigError(f"'{self.when}' takes no value: remove value = {self.value!r}")
        try:
            return kind.threshold(f"{self.value:g}" if isinstance(self.value, float) else str(self.value))
        except ConfigError as error:
            raise ConfigError(f"value of '{self.when}': {error}") from None


class AlertSettings(Settings):
    """Rules and receivers of alerts; without rules there are none."""

    rules: tuple[RuleSettings, ...] = ()
    """The rules."""
    receivers: Mapping[Name, Receiver] = Field(default_factory=dict)
    """Where notifications are sent, by name."""
    every: Duration = lasting("10s")
    """How often the rules are evaluated."""
    gather: Duration = lasting("30s")
    """How long a notification waits for further alerts of its rule."""

    @field_validator("receivers", mode="before")
    @classmethod
    def _kinds(cls, receivers: Any) -> Any:
        for name, receiver in receivers.items() if isinstance(receivers, Mapping) else ():
            kind = receiver.get("kind") if isinstance(receiver, Mapping) else None
            if isinstance(kind, str) and kind not in RECEIVER_KINDS:
                raise ValueError(f"{name}: there is no kind '{kind}'{nearest(kind, RECEIVER_KINDS)}")
        return receivers

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for name, count in Counter(rule.title for rule in self.rules).items():
            if count > 1:
                raise ValueError(f"rules: {count} rules are called '{name}': give each a name of its own")
        for rule in self.rules:
            for receiver in rule.to or ():
                if receiver not in self.receivers:
                    known = nearest(receiver, self.receivers)
                    raise ValueError(f"rules: {rule.title}: to: there is no receiver '{receiver}'{known}")
        return self

    def parsed_rules(self) -> tuple[Rule, ...]:
        """The rules with values in base units."""
        return tuple(self._make_rule(rule) for rule in self.rules)

    def _make_rule(self, rule: RuleSettings) -> Rule:
        return Rule(
            name=rule.title,
            when=rule.when,
            threshold=rule.threshold(),
            where=parse_where(rule.where),
            severity=rule.severity,
            repeat_s=rule.repeat,
            for_s=rule.for_,
            within_s=rule.within,
            to=tuple(self.receivers) if rule.to is None else rule.to,
        )
