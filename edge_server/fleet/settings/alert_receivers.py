"""The tables `[alerts.receivers.NAME]` of service.toml: where alerts are sent."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints

from edge_server.config.integrations import PREFIX_PATTERN
from edge_server.config.measures import parse_duration
from schemas.base import Settings
from schemas.errors import ConfigError


def _seconds(value: object) -> object:
    """A duration as seconds; a plain number is refused, as its unit is not stated."""
    if isinstance(value, bool | int | float):
        raise ValueError(f'\'{value}\' has no unit: write a duration such as "{value:g}s" or "2h"')
    try:
        return parse_duration(value) if isinstance(value, str) else value
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
    return Field(default=parse_duration(text), json_schema_extra={"default": text}, **options)


WebAddress = Annotated[str, AfterValidator(_web_address)]
MailAddress = Annotated[str, StringConstraints(pattern=r"^[^@\s<>,]{1,200}@[^@\s<>,]{1,200}$")]


class WebhookReceiver(Settings):
    """Each notification is posted as JSON, signed with a shared secret.

    The header `X-Edge-Signature` is `sha256=` and the HMAC-SHA256 of `X-Edge-Timestamp`, a dot and the body.
    """

    kind: Literal["webhook"]
    url: WebAddress
    """Where the notification is posted."""
    secret: Path | None = None
    """File with the secret of the signature."""
    ca: Path | None = None
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
    ca: Path | None = None
    """PEM file with the authority of the mail server's certificate, if it is not a public one."""
    user: str | None = None
    """Name for the login; no login without one."""
    password: Path | None = None
    """File with the password."""
    sender: MailAddress
    """Address that the mails are from."""
    recipients: Annotated[tuple[MailAddress, ...], Field(min_length=1)]
    """Addresses that the mails are sent to."""


class HomeAssistantReceiver(Settings):
    """Each rule is a binary sensor of the device in Home Assistant, by MQTT discovery on the same broker."""

    kind: Literal["home-assistant"]
    prefix: Annotated[str, StringConstraints(pattern=PREFIX_PATTERN)] = "homeassistant"
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
    password: Path | None = None
    """File with the password."""
    ca: Path | None = None
    """PEM file with the authority of Alertmanager's certificate, if it is not a public one."""
    labels: Mapping[str, str] = Field(default_factory=dict)
    """Further labels of every alert."""


Receiver = Annotated[
    WebhookReceiver | MailReceiver | HomeAssistantReceiver | AlertmanagerReceiver, Field(discriminator="kind")
]
RECEIVER_KINDS = ("webhook", "smtp", "home-assistant", "alertmanager")
