"""The keys of `service.toml`: one page, a section per table."""

import inspect
from collections.abc import Iterator, Mapping
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel

from deploy.docs.generator.markdown import code, page, table
from deploy.docs.generator.settings import keys_table, text_of
from edge_server.fleet.settings.alert_kinds import RULE_KINDS
from edge_server.fleet.settings.alerts import RuleSettings
from edge_server.fleet.settings.service import ServiceSettings
from schemas.base import kebab

INTRO = (
    "The settings of `edge-server serve DIR`, in `DIR/service.toml`; the service reads the file when it "
    "starts. Durations are written `90s`, `30min`, `2h` or `14d`. Paths are relative to the "
    "folder."
)


def service_page() -> str:
    """All tables of `service.toml`."""
    return page("service.toml", INTRO, *(_section(name, model, kind) for name, model, kind in _tables()))


def _section(name: str, model: type[BaseModel], kind: str) -> str:
    of_kind = f" of kind `{kind}`" if kind else ""
    inner = {key for key, field in model.model_fields.items() if _models(field.annotation)}
    left = {kebab(key) for key in inner}
    parts = [f"## `{name}`{of_kind}", text_of(inspect.getdoc(model) or ""), keys_table(model, leave_out=left)]
    return "\n\n".join([*parts, *([_rule_kinds()] if model is RuleSettings else [])])


def _rule_kinds() -> str:
    rows = [(code(when), kind.about, kind.value or "none", kind.default) for when, kind in RULE_KINDS.items()]
    return "### Kinds of rules\n\n" + table(("`when`", "raised for", "`value`", "default"), rows)


def _tables(
    model: type[BaseModel] = ServiceSettings, above: str = ""
) -> Iterator[tuple[str, type[BaseModel], str]]:
    """Every table below a model: its heading, its model, and its kind if there are several."""
    for key, field in model.model_fields.items():
        found = _models(field.annotation)
        path = f"{above}{kebab(key)}"
        for inner in found:
            yield _heading(path, field.annotation), inner, _kind(inner) if len(found) > 1 else ""
            yield from _tables(inner, f"{path}.")


def _heading(path: str, annotation: Any) -> str:
    origins = [get_origin(part) for part in (annotation, *get_args(annotation))]
    if tuple in origins:
        return f"[[{path}]]"
    return (
        f"[{path}.NAME]"
        if any(origin in (Mapping, dict) or origin is Mapping for origin in origins)
        else f"[{path}]"
    )


def _kind(model: type[BaseModel]) -> str:
    field = model.model_fields.get("kind")
    return str(get_args(field.annotation)[0]) if field and get_origin(field.annotation) is Literal else ""


def _models(annotation: Any) -> list[type[BaseModel]]:
    """The models within an annotation."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in _models(part)]
