"""The keys of `federation.toml` and `client.toml`, a page per section; JSON Schemas for editors; messages."""

import ast
import inspect
import json
import re
import textwrap
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from deploy.docs.generator.markdown import code, page, table
from edge_client.cli.config_file import SECTIONS, ClientFile
from edge_server.config.concepts import summary_of
from edge_server.config.config import Config
from schemas.base import kebab
from schemas.errors import Reason
from schemas.messages import MESSAGES

SCHEMA = "https://json-schema.org/draft/2020-12/schema"


def federation_pages() -> dict[str, str]:
    """The pages of `federation.toml`, and its schema."""
    sections = {kebab(name): _model(field.annotation) for name, field in Config.model_fields.items()}
    found = {name: model for name, model in sections.items() if model is not None}
    rows = [(f"[`[{name}]`]({name}.md)", first_sentence(model)) for name, model in found.items()]
    intro = (
        "A federation file names a recipe or states the components of a strategy; every key has a default. "
        "`edge-server check FILE` prints the file with every default. On the command line a key is written "
        "`section.key=value`, or `key=value` where one section alone has the key. "
        "Editors that know JSON Schema complete and check the file with `#:schema federation.schema.json` "
        "in its first line ([schema](federation.schema.json))."
    )
    pages = {f"{name}.md": _section_page(name, model) for name, model in found.items()}
    return {
        **pages,
        "index.md": page("federation.toml", intro, table(("section", "what it states"), rows), _tree(found)),
        "federation.schema.json": _schema(Config, "federation.toml"),
    }


def client_pages() -> dict[str, str]:
    """The pages of `client.toml`, and its schema."""
    intro = (
        "The file states options of `edge-client run` ([edge-client](../edge-client.md#edge-client-run)); an "
        "option on the command line replaces the file's key. Paths are relative to the file's folder. The "
        "keys of `[eligibility]` and `[veto]` are on pages of their own ([eligibility](eligibility.md), "
        "[veto](veto.md)). Editors take [the schema](client.schema.json)."
    )
    return {
        "index.md": page(
            "client.toml",
            intro,
            keys_table(ClientFile, leave_out={*SECTIONS}),
            _tree(SECTIONS),
        ),
        **{f"{name}.md": _section_page(name, section) for name, section in SECTIONS.items()},
        "client.schema.json": _schema(ClientFile, "client.toml"),
    }


def _tree(names: Mapping[str, object]) -> str:
    return "```{toctree}\n:hidden:\n\n" + "\n".join(names) + "\n```"


def _section_page(name: str, model: type[BaseModel]) -> str:
    return page(f"[{name}]", text_of(inspect.getdoc(model) or ""), keys_table(model))


def keys_table(model: type[BaseModel], leave_out: set[str] = frozenset()) -> str:  # type: ignore[assignment]
    """The table of a model's keys."""
    described = descriptions(model)
    properties = properties_of(model)
    rows = [
        (code(key), type_text(schema), _default(schema), described.get(key, ""))
        for key, schema in properties.items()
        if key not in leave_out
    ]
    return table(("key", "value", "default", "meaning"), rows)


def properties_of(model: type[BaseModel]) -> dict[str, dict[str, Any]]:
    """The JSON Schema of each field, with references resolved."""
    schema = model.model_json_schema(by_alias=True)
    return {key: _resolved(value, schema) for key, value in schema["properties"].items()}


def _resolved(value: Any, schema: Mapping[str, Any]) -> Any:
    if isinstance(value, Mapping):
        if "$ref" in value:
            found = _resolved(schema["$defs"][value["$ref"].rpartition("/")[2]], schema)
            return {**found, **{key: item for key, item in value.items() if key != "$ref"}}
        return {key: _resolved(item, schema) for key, item in value.items() if key != "$defs"}
    return [_resolved(item, schema) for item in value] if isinstance(value, list) else value


def descriptions(model: type[BaseModel]) -> dict[str, str]:
    """The description of each key: the docstring below the field."""
    found: dict[str, str] = {}
    for owner in reversed(model.__mro__):
        if owner in (BaseModel, object) or not issubclass(owner, BaseModel):
            continue
        for name, about in owner.model_fields.items():
            if about.description:
                found[kebab(name)] = sentence(about.description)
        try:
            body = ast.parse(textwrap.dedent(inspect.getsource(owner))).body[0]
        except OSError:
            continue
        assert isinstance(body, ast.ClassDef)
        for field, text in zip(body.body, body.body[1:], strict=False):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(text, ast.Expr)
            ):
                value = text.value
                if isinstance(value, ast.Constant) and isinstance(value.value, str):
                    found[kebab(field.target.id.rstrip("_"))] = text_of(value.value)
    return found


def sentence(help: str) -> str:
    """An option's help as a sentence, without its default."""
    text = re.sub(r" \(default: .*\)$", "", help)
    return f"{text[0].upper()}{text[1:]}."


def text_of(docstring: str) -> str:
    """A docstring with keys as TOML writes them."""
    return re.sub(r"`([a-z][a-z_]*_[a-z_]+)`", lambda name: f"`{name.group(1).replace('_', '-')}`", docstring)


def first_sentence(model: type[BaseModel]) -> str:
    """The first sentence of a docstring."""
    return re.split(r"(?<=[.:])\s", text_of(inspect.getdoc(model) or ""))[0].replace("\n", " ")


def type_text(schema: Mapping[str, Any]) -> str:
    """A type and its bounds, in words."""
    if "enum" in schema:
        return ", ".join(code(json.dumps(value)) for value in schema["enum"])
    if "const" in schema:
        return code(json.dumps(schema["const"]))
    if "anyOf" in schema or "oneOf" in schema:
        kinds = [kind for kind in schema.get("anyOf", schema.get("oneOf", ())) if kind.get("type") != "null"]
        return " or ".join(dict.fromkeys(map(type_text, kinds)))
    kind = schema.get("type")
    if kind == "array":
        inner = type_text(schema["items"]) if isinstance(schema.get("items"), Mapping) else ""
        return f"list of {inner}" if inner else "list"
    words = {
        "integer": "whole number",
        "number": "number",
        "string": "text",
        "boolean": "`true` or `false`",
        "object": "table",
    }
    bounds = [
        f"{word} {schema[key]:g}"
        for key, word in (
            ("minimum", "≥"),
            ("exclusiveMinimum", ">"),
            ("maximum", "≤"),
            ("exclusiveMaximum", "<"),
        )
        if key in schema
    ]
    return " ".join([words.get(str(kind), ""), *bounds]).strip()


def _default(schema: Mapping[str, Any]) -> str:
    value = schema.get("default")
    if value is None or isinstance(value, Mapping):
        return ""
    return code(json.dumps(value, ensure_ascii=False))


def _model(annotation: Any) -> type[BaseModel] | None:
    kinds = (annotation, *getattr(annotation, "__args__", ()))
    return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)


def _schema(model: type[BaseModel], title: str) -> str:
    schema = model.model_json_schema(by_alias=True)
    documented = {model.__name__: model, **_models(model)}
    for name, part in [(model.__name__, schema), *schema.get("$defs", {}).items()]:
        if name not in documented:
            continue
        part["description"] = re.sub(r"\s+", " ", text_of(inspect.getdoc(documented[name]) or ""))
        for key, text in descriptions(documented[name]).items():
            if key in part.get("properties", {}):
                part["properties"][key]["description"] = re.sub(r"\s+", " ", text)
    return (
        json.dumps(
            {"$schema": SCHEMA, **schema, "title": title}, indent=1, ensure_ascii=False, sort_keys=True
        )
        + "\n"
    )


def _models(model: type[BaseModel]) -> dict[str, type[BaseModel]]:
    found = {}
    for field in model.model_fields.values():
        inner = _model(field.annotation)
        if inner is not None:
            found |= {inner.__name__: inner, **_models(inner)}
    return found


def protocol_page() -> str:
    """Every message, and the reasons of refusals."""
    intro = (
        "Messages are JSON objects with a `kind`; tensors travel as binary chunks. "
        "`edge-server schemas --out FOLDER` writes JSON Schemas of all of them. "
        "[schemas](../../../schemas/README.md) describes the exchange and the frame of a chunk."
    )
    sections = [
        f"## {kind}\n\n{summary_of(model)}\n\n"
        + table(
            ("field", "value"),
            [(code(name), type_text(field)) for name, field in properties_of(model).items()],
        )
        for kind, model in sorted(MESSAGES.items())
    ]
    reasons = "## Reasons of refusals\n\n" + ", ".join(code(str(reason)) for reason in Reason)
    return page("Protocol", intro, *sections, reasons)
