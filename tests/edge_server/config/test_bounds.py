"""Every duration that a file or a message states has an upper bound."""

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from edge_server.config.config import Config
from edge_server.fleet.settings.service import ServiceSettings
from schemas.messages import MESSAGES

MODELS: dict[str, type[BaseModel]] = {"federation.toml": Config, "service.toml": ServiceSettings, **MESSAGES}


def durations(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every number whose name ends in `s` for seconds, with its place in the schema."""
    for owner, part in {"": schema, **schema.get("$defs", {})}.items():
        for key, value in part.get("properties", {}).items():
            if key.endswith(("-s", "_s")):
                for found in (value, *value.get("anyOf", ()), value.get("items", {})):
                    if found.get("type") in ("number", "integer"):
                        yield f"{owner}.{key}", found


@pytest.mark.parametrize("name", MODELS)
def test_every_duration_has_an_upper_bound(name: str) -> None:
    schema = MODELS[name].model_json_schema(by_alias=True)
    free = [key for key, found in durations(schema) if not {"maximum", "exclusiveMaximum"} & found.keys()]
    assert free == []


def test_there_are_durations() -> None:
    assert len(list(durations(Config.model_json_schema(by_alias=True)))) > 5
