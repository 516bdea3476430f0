"""`client.toml`: the options of `edge-client run` as a file; the command line overrides it."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from edge_client.agent.eligibility.rules import Rules
from schemas.base import Settings, kebab
from schemas.errors import ConfigError, nearest
from schemas.values import Variant


class ClientFile(Settings):
    """Keys are the names of options; paths are relative to the file's folder.

    `trust` names the public key that must have signed models. The table `[eligibility]` has no option.
    """

    broker: str | None = None
    """Address of the broker, `mqtt://host:1883` or `mqtts://host:8883`."""
    ca: Path | None = None
    """Certificate of the authority that signed the broker."""
    cert: Path | None = None
    """The device's certificate."""
    key: Path | None = None
    """The device's private key."""
    trust: Path | None = None
    """The server's public key: take only models and tasks that it has signed."""
    federation: str | None = None
    """Name of the federation."""
    device_id: str | None = None
    """The device's name; the host name if unset."""
    data: str | None = None
    """What the device trains on."""
    data_root: Path | None = None
    """Folder of named data sets."""
    partition: str | None = None
    """How several devices share one data set."""
    share: str | None = None
    """Which share is this device's, `N/M`."""
    seed: int | None = None
    """Seed of the partition and of the hold-out."""
    hold_out: float | None = Field(default=None, ge=0, lt=1)
    """Share of each class that is never trained on."""
    tier: int | None = Field(default=None, ge=1)
    """Capability tier; unset lets the server choose."""
    threads: int | None = Field(default=None, ge=1)
    """Threads that torch may use."""
    state_dir: Path | None = None
    """Folder of the device's state."""
    checkpoint_s: float | None = Field(default=None, gt=0)
    """Seconds of training between two checkpoints."""
    telemetry_every_s: float | None = Field(default=None, ge=0)
    """Seconds between status messages; 0 disables them."""
    model_code: tuple[str, ...] | None = None
    """Networks outside this package that a task may use."""
    flower: str | None = None
    """A Flower `ClientApp` that trains instead of this package."""
    flower_config: tuple[str, ...] | None = None
    """Settings of the Flower app, `key=value`."""
    flower_node: tuple[str, ...] | None = None
    """Node settings of the Flower app, `key=value`."""
    only_masked: bool | None = None
    """Refuse tasks whose updates are not masked."""
    variants: tuple[Variant, ...] | None = None
    """Forms of the final model that are tried."""
    max_accuracy_loss: float | None = Field(default=None, ge=0, le=100)
    """Points of accuracy that a smaller form may cost."""
    keep_trying: bool | None = None
    """Retry what cannot heal, too."""
    once: bool | None = None
    """End with the run."""
    quiet: bool | None = None
    """Print nothing."""
    log_format: Literal["human", "json"] | None = None
    """Format of the log."""
    log_level: Literal["debug", "info", "warning", "error"] | None = None
    """Least level that is logged."""
    eligibility: Rules | None = None
    """When the device may train."""


def read_client_file(path: Path) -> dict[str, Any]:
    """The settings of a file by Python option name; `ConfigError` with the nearest key for an unknown one."""
    try:
        table = tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise ConfigError(f"--config {path}: there is no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--config {path}: cannot be read: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from error
    try:
        stated = dict(ClientFile.model_validate(table, by_alias=True, by_name=False))
    except ValidationError as error:
        raise ConfigError("\n".join(_line(problem, path) for problem in error.errors())) from error
    folder = path.absolute().parent
    stated = {key: value for key, value in stated.items() if value is not None}
    values = {key: folder / value if isinstance(value, Path) else value for key, value in stated.items()}
    return {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}


def _line(problem: Any, path: Path) -> str:
    key = ".".join(part for part in problem["loc"] if isinstance(part, str))
    if problem["type"] == "extra_forbidden":
        known = Rules if len(problem["loc"]) > 1 else ClientFile
        near = nearest(problem["loc"][-1], map(kebab, known.model_fields))
        return f"{path}: unknown key '{key}'{near}"
    return f"{path}: {key}: {problem['msg']}, got {problem['input']!r}"
