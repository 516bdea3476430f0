"""The table `[alerts]` of service.toml: which states of devices, rounds and jobs become alerts, for whom."""

from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    StringConstraints,
    field_validator,
)

from edge_server.config import measures, object_store
from edge_server.fleet.settings.alert_kinds import RULE_KINDS, Rule, Severity
from schemas.base import Name, Settings
from schemas.errors import ConfigError, nearest
from schemas.selectors import parse_where


def _seconds(value: object) -> object:
    """A duration as seconds; a plain number is refused, as its unit is not stated."""
    if isinstance(value, bool | int | float):
        raise ValueError(f'\'{value}\' has no unit: write a duration such as "{value:g}s" or "2h"')
    try:
        return measures.parse_duration(value) if isinstance(value, str) else value
    except ConfigError as error:
        raise ValueError(str(error)) from None


def _web_address(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"'{url}' is not a web address such as https://host/path")
    return url


Duration = Annotated[float, BeforeValidator(_seconds, json_schema_input_type=str)]
"""Seconds, written as `90s`, `30min`, `2h` or `14d`."""


def lasting(text: str, **options: Any) -> Any:
    """A field with this duration as its default, as users write it."""
    return Field(default=measures.parse_duration(text), json_schema_extra={"default": text}, **options)


WebAddress = Annotated[str, AfterValidator(_web_address)]
MailAddress = Annotated[str, StringConstraints(pattern=r"^[^@\s<>,]{1,200}@[^@\s<>,]{1,200}$")]


class WebhookReceiver(Settings):
    """Each notification is posted as JSON, signed with a shared secret.

    The header `X-Edge-Signature` is `sha256=` and the HMAC-SHA256 of `X-Edge-Timestamp`, a dot and the body.
    """

    kind: Literal["webhook"]
    url: WebAddress
    """Where the notification is posted."""
    secret: measures.NamedPath | None = None
    """File with the secret of the signature."""
    ca: measures.NamedPath | None = None
    """PEM file with the authority of the receiver's certificate, if it is not a public one."""


class MailReceiver(Settings):
    """Each notification is one mail."""

    kind: Literal["smtp"]
    host: Annotated[str, Field(min_length=1)]
    """Name of the mail server."""
    port: Annotated[int | None, Field(ge=1, le=65535)] = None
    """Port of the mail server; by default 587 with STARTTLS, 465 with SSL, else 25."""
    tls: Literal["starttls", "ssl", "none"] = "starttls"
    """How the connection is encrypted."""
    ca: measures.NamedPath | None = None
    """PEM file with the authority of the mail server's certificate, if it is not a public one."""
    user: str | None = None
    """Name for the login; no login without one."""
    password: measures.NamedPath | None = None
    """File with the password."""
    sender: MailAddress
    """Address that the mails are from."""
    recipients: Annotated[tuple[MailAddress, ...], Field(min_length=1)]
    """Addresses that the mails are sent to."""


class HomeAssistantReceiver(Settings):
    """Each rule is a binary sensor of the device in Home Assistant, by MQTT discovery on the same broker."""

    kind: Literal["home-assistant"]
    prefix: Annotated[str, StringConstraints(pattern=object_store.PREFIX_PATTERN)] = "homeassistant"
    """Home Assistant's discovery prefix."""


class AlertmanagerReceiver(Settings):
    """Alerts are posted to Alertmanager, which groups, repeats and routes them itself."""

    kind: Literal["alertmanager"]
    url: WebAddress
    """Address of Alertmanager, such as `http://alertmanager:9093`."""
    resend: Duration = lasting("60s")
    """How often firing alerts are posted again."""
    user: str | None = None
    """Name for basic authentication."""
    password: measures.NamedPath | None = None
    """File with the password."""
    ca: measures.NamedPath | None = None
    """PEM file with the authority of Alertmanager's certificate, if it is not a public one."""
    labels: Mapping[str, str] = Field(default_factory=dict)
    """Further labels of every alert."""


Receiver = Annotated[
    WebhookReceiver | MailReceiver | HomeAssistantReceiver | AlertmanagerReceiver, Field(discriminator="kind")
]
RECEIVER_KINDS = ("webhook", "smtp", "home-assistant", "alertmanager")


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

    def _check(self) -> None:
        self.threshold()
        parse_where(self.where)
        if self.repeat < 60:
            raise ValueError(f'repeat: {self.repeat:g} s is less than a minute: write for instance "4h"')

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
            raise ConfigError(f"'{self.when}' takes no value", remedy=f"remove value = {self.value!r}")
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

    def _check(self) -> None:
        for name, count in Counter(rule.title for rule in self.rules).items():
            if count > 1:
                raise ValueError(f"rules: {count} rules are called '{name}': give each a name of its own")
        for rule in self.rules:
            for receiver in rule.to or ():
                if receiver not in self.receivers:
                    known = nearest(receiver, self.receivers)
                    raise ValueError(f"rules: {rule.title}: to: there is no receiver '{receiver}'{known}")

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
