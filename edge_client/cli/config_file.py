"""`client.toml`: the options of `edge-client run` as a file; the command line overrides it."""

import tomllib
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, create_model

from edge_client.agent.eligibility.rules import Rules, Veto
from edge_client.cli.device_options import DEVICE_OPTIONS
from schemas.base import Settings, kebab
from schemas.errors import ConfigError, nearest, reason_of


def _key(kind: Any, help: str | None, **bounds: Any) -> tuple[Any, Any]:
    return kind | None, Field(default=None, description=help, **bounds)


_KEYS: dict[str, Any] = {
    option.key: _key(
        tuple[option.type, ...] if option.many else option.type,  # type: ignore[name-defined]
        option.help,
        **(option.bounds or {}),
    )
    for option in DEVICE_OPTIONS
}
ClientFile = create_model(
    "ClientFile",
    __base__=Settings,
    __doc__="Keys are the names of options; paths are relative to the file's folder.",
    **_KEYS,
    log_format=_key(Literal["human", "json"], "format of the log"),
    log_level=_key(Literal["debug", "info", "warning", "error"], "lowest level that is logged"),
    eligibility=_key(Rules, "when the device may train"),
    veto=_key(Veto, "what the device declines"),
)


SECTIONS: dict[str, type[Settings]] = {"eligibility": Rules, "veto": Veto}  # The tables of the file


def read_client_file(path: Path) -> dict[str, Any]:
    """The settings of a file by Python option name; `ConfigError` with the nearest key for an unknown one."""
    try:
        table = tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise ConfigError("there is no such file", place=f"--config {path}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot be read: {error}", place=f"--config {path}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"not valid TOML: {error}", place=path) from error
    try:
        stated = dict(ClientFile.model_validate(table, by_alias=True, by_name=False))
    except ValidationError as error:
        raise ConfigError.of([_problem(problem) for problem in error.errors()], path) from error
    folder = path.absolute().parent
    stated = {key: value for key, value in stated.items() if value is not None}
    values = {key: folder / value if isinstance(value, Path) else value for key, value in stated.items()}
    return {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}


def _problem(problem: Any) -> ConfigError:
    key = ".".join(part for part in problem["loc"] if isinstance(part, str))
    if problem["type"] == "extra_forbidden":
        known = SECTIONS[problem["loc"][0]] if len(problem["loc"]) > 1 else ClientFile
        near = nearest(problem["loc"][-1], map(kebab, known.model_fields))
        return ConfigError(f"unknown key '{key}'{near}")
    return ConfigError(f"{reason_of(problem)}, got {problem['input']!r}", key=key)
