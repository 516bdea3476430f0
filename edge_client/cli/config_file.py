"""`client.toml`: the options of `edge-client run` as a file; the command line wins over it."""

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
    """Keys are the options' names; paths are taken from the file's own folder.

    `trust` names the public key that models must be signed with. `[eligibility]` is a table, which has no
    option of its own.
    """

    broker: str | None = None
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    trust: Path | None = None
    federation: str | None = None
    device_id: str | None = None
    data: str | None = None
    data_root: Path | None = None
    partition: str | None = None
    share: str | None = None
    seed: int | None = None
    hold_out: float | None = Field(default=None, ge=0, lt=1)
    tier: int | None = Field(default=None, ge=1)
    threads: int | None = Field(default=None, ge=1)
    state_dir: Path | None = None
    checkpoint_s: float | None = Field(default=None, gt=0)
    telemetry_every_s: float | None = Field(default=None, ge=0)
    model_code: tuple[str, ...] | None = None
    flower: str | None = None
    flower_config: tuple[str, ...] | None = None
    flower_node: tuple[str, ...] | None = None
    only_masked: bool | None = None
    variants: tuple[Variant, ...] | None = None
    max_accuracy_loss: float | None = Field(default=None, ge=0, le=100)
    keep_trying: bool | None = None
    once: bool | None = None
    quiet: bool | None = None
    log_format: Literal["human", "json"] | None = None
    log_level: Literal["debug", "info", "warning", "error"] | None = None
    eligibility: Rules | None = None


def read_client_file(path: Path) -> dict[str, Any]:
    """What the file states, by the options' names in Python; raises `ConfigError` with the nearest key."""
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
