"""Error messages for a federation file: file, key, reason, nearest match."""

from types import UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from schemas.base import kebab
from schemas.errors import ConfigError, near, nearest, reason_of

UNNAMED = "~"  # prefix of pydantic's tag of a union member, which no user has written
OTHER_TYPE = ("_type", "_parsing", "_from_float", "literal_error")  # problems of a value of no such type


def explain(error: ValidationError, model: type[BaseModel], source: str) -> ConfigError:
    """The error with each problem of the file; a list that is wrong only because of its items is omitted.

    So is a default that could not be computed because the values that it follows from are wrong.
    """
    problems = [p for p in error.errors(include_url=False) if p["type"] != "default_factory_not_called"]
    causes = [p for p in problems if not any(_inside(other, p) for other in problems)]
    return ConfigError.of([_problem(problem, model) for problem in _without_members(causes, model)], source)


def _without_members(problems: list[Any], model: type[BaseModel]) -> list[Any]:
    """The problems without pydantic's names of a union's members, one for a value of no member's type.

    A member whose type the value has hides the others.
    """
    fields: dict[tuple[str | int, ...], list[Any]] = {}
    for problem in problems:
        depth = _depth_of_union(problem["loc"], model)
        fields.setdefault(problem["loc"] if depth is None else problem["loc"][:depth], []).append(problem)
    return [one for loc, group in fields.items() for one in _of_one_field(loc, group)]


def _of_one_field(loc: tuple[str | int, ...], problems: list[Any]) -> list[Any]:
    if problems[0]["loc"] == loc:
        return problems
    inner = [each for each in problems if len(each["loc"]) > len(loc) + 1]
    typed = inner or [each for each in problems if not each["type"].endswith(OTHER_TYPE)]
    if typed:
        return [{**each, "loc": loc + each["loc"][len(loc) + 1 :]} for each in typed]
    reasons = [reason_of(each) for each in problems]
    short = [text.split(", unable")[0].split(", got")[0] for text in reasons]
    others = [text.removeprefix("input should be ").removeprefix("must be ") for text in short[1:]]
    return [{**problems[0], "loc": loc, "type": "union", "msg": " or ".join([short[0], *others])}]


def _depth_of_union(loc: tuple[str | int, ...], model: type[BaseModel]) -> int | None:
    """Where in a problem's place the name of a union's member stands; None if nowhere."""
    for depth, part in enumerate(loc[:-1], 1):
        field = {key_of(*item): item[1] for item in model.model_fields.items()}.get(str(part))
        members = [each for each in get_args(field.annotation) if each is not type(None)] if field else []
        if field and get_origin(field.annotation) in (Union, UnionType) and len(members) > 1:
            return None if str(loc[depth]).startswith(UNNAMED) else depth
        inner = _model_in(field.annotation) if field else None
        if inner is None:
            return None
        model = inner
    return None


def _inside(inner: Any, outer: Any) -> bool:
    depth = len(outer["loc"])
    return len(inner["loc"]) > depth and inner["loc"][:depth] == outer["loc"]


def _problem(problem: Any, model: type[BaseModel]) -> ConfigError:
    path = [str(part) for part in problem["loc"] if not str(part).startswith(UNNAMED)]
    if problem["type"] == "extra_forbidden":
        return _unknown(path, model)
    given = problem.get("input")
    own = problem["type"] == "value_error"
    shown = f", got {given!r}" if isinstance(given, (str, int, float, bool)) and not own else ""
    return _at(path, f"{reason_of(problem)}{shown}")


def _unknown(path: list[str], model: type[BaseModel]) -> ConfigError:
    """The problem of an unknown key: its section, or the nearest key."""
    key, known = path[-1], _keys_of_table(model, path)
    owners = [section for section, keys in section_keys(model).items() if key in keys]
    if near(key, known) is None and owners and len(path) <= 2:
        belongs = " or ".join(f"[{owner}]" for owner in owners)
        where = "outside of any section" if len(path) == 1 else f"in [{path[0]}]"
        return ConfigError(f"'{key}' stands {where}", remedy=f"it belongs in {belongs}")
    return _at(path, f"unknown key '{key}'{nearest(key, known)}")


def section_keys(model: type[BaseModel]) -> dict[str, set[str]]:
    """The keys of each section of a file, without a recipe's description."""
    fields = {name: field for name, field in model.model_fields.items() if name != "recipe"}
    inner = {kebab(name): _model_in(field.annotation) for name, field in fields.items()}
    return {name: {key_of(*item) for item in m.model_fields.items()} for name, m in inner.items() if m}


def key_of(name: str, field: FieldInfo) -> str:
    return field.alias or kebab(name)


def _at(path: list[str], reason: str) -> ConfigError:
    """A problem of the key in a section, of a section, or of the whole file."""
    if len(path) > 1:
        return ConfigError(reason, key=f"[{path[0]}] {'.'.join(path[1:])}")
    return ConfigError(f"[{path[0]}] {reason}" if path else reason)


def _keys_of_table(model: type[BaseModel], path: list[str]) -> list[str]:
    """The known keys in the table of the last key of `path`; numbers are places in a list of tables."""
    for part in path[:-1]:
        if part.isdigit():
            continue
        field = {key_of(name, info): info for name, info in model.model_fields.items()}.get(part)
        inner = _model_in(field.annotation) if field else None
        if inner is None:
            return []
        model = inner
    return [key_of(name, info) for name, info in model.model_fields.items()]


def _model_in(annotation: Any) -> type[BaseModel] | None:
    for candidate in (annotation, *get_args(annotation)):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    return None
