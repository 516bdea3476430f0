"""Every message and value has a JSON Schema, and the messages sent conform to theirs."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from schemas.json_schema import VALUES, json_schemas
from schemas.messages import MESSAGES
from tests.schemas.examples import CHANNEL_MAP, MESSAGES_BY_KIND, SIGNED, SPEC, STRATEGY

SCHEMAS = json_schemas()
EXAMPLES = {
    **MESSAGES_BY_KIND,
    "channel-map": CHANNEL_MAP,
    "sub-model-spec": SPEC,
    "strategy-spec": STRATEGY,
    "signed-manifest": SIGNED,
}
TYPES = {
    "object": Mapping,
    "array": list,
    "string": str,
    "number": (int, float),
    "integer": int,
    "boolean": bool,
    "null": type(None),
}


def parts(schema: Any) -> Iterator[Mapping[str, Any]]:
    """The schema and every schema inside it."""
    if isinstance(schema, Mapping):
        yield schema
        for inner in schema.values():
            yield from parts(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from parts(inner)


def violations(value: Any, schema: Mapping[str, Any], defs: Mapping[str, Any], where: str = "") -> list[str]:
    """The places where a value violates its schema; checks only names, types and constants."""
    if "$ref" in schema:
        return violations(value, defs[schema["$ref"].removeprefix("#/$defs/")], defs, where)
    if "anyOf" in schema:
        found = [violations(value, option, defs, where) for option in schema["anyOf"]]
        return [] if [] in found else min(found, key=len)
    if "const" in schema and value != schema["const"]:
        return [f"{where} is not {schema['const']!r}"]
    if "enum" in schema and value not in schema["enum"]:
        return [f"{where} is not one of {schema['enum']}"]
    if "type" in schema and not isinstance(value, TYPES[schema["type"]]):
        return [f"{where} is not of type {schema['type']}"]
    if isinstance(value, list):
        items = schema.get("items", {})
        return [bad for i, item in enumerate(value) for bad in violations(item, items, defs, f"{where}[{i}]")]
    if not isinstance(value, Mapping):
        return []
    known, more = schema.get("properties", {}), schema.get("additionalProperties", True)
    found = [f"{where}.{name} is missing" for name in schema.get("required", ()) if name not in value]
    for name, field in value.items():
        if name in known:
            found += violations(field, known[name], defs, f"{where}.{name}")
        elif more is False:
            found.append(f"{where}.{name} is unknown")
        elif isinstance(more, Mapping):
            found += violations(field, more, defs, f"{where}.{name}")
    return found


def test_every_message_and_value_has_a_schema():
    assert SCHEMAS.keys() == MESSAGES.keys() | VALUES.keys() == EXAMPLES.keys()


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_is_a_json_document_that_refers_only_to_itself(name):
    schema = json.loads(json.dumps(SCHEMAS[name], allow_nan=False))
    assert schema["type"] == "object"
    refs = [part["$ref"] for part in parts(schema) if isinstance(part.get("$ref"), str)]
    assert {ref.removeprefix("#/$defs/") for ref in refs} <= schema.get("$defs", {}).keys()
    types = [part["type"] for part in parts(schema) if isinstance(part.get("type"), str)]
    assert set(types) <= TYPES.keys()


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_refuses_unknown_fields(name):
    assert SCHEMAS[name]["additionalProperties"] is False


@pytest.mark.parametrize("name", MESSAGES)
def test_a_schema_names_its_kind(name):
    assert SCHEMAS[name]["properties"]["kind"]["const"] == name


@pytest.mark.parametrize("name", SCHEMAS)
def test_an_encoded_example_conforms_to_its_schema(name):
    schema, value = SCHEMAS[name], json.loads(EXAMPLES[name].model_dump_json())
    assert violations(value, schema, schema.get("$defs", {})) == []


@pytest.mark.parametrize("name", SCHEMAS)
def test_field_names_are_identifiers(name):
    # Field names are kebab-case in TOML, but never in messages.
    named = {key for part in parts(SCHEMAS[name]) for key in part.get("properties", {})}
    named |= {key for part in parts(SCHEMAS[name]) for key in part.get("required", ())}
    assert {key for key in named if not key.isidentifier()} == set()


def test_the_schema_of_a_task_names_the_training_settings():
    plan = SCHEMAS["task"]["$defs"]["TrainingPlan"]["properties"]
    assert {"learning_rate", "batch_size", "local_epochs", "weight_decay"} <= plan.keys()
