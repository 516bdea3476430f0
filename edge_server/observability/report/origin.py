"""The origin of a run, and the commands and digests needed to repeat it."""

import argparse
import hashlib
import json
import math
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from edge_server.observability.report.contents import RunContents
from edge_server.observability.report.document import Block, Code, FactList, Paragraph, Section, table, words
from edge_server.storage.provenance import Provenance
from edge_server.storage.run_folder import RunFolder

LEFT_OUT = ("recipe",)  # Sections that the report shows elsewhere


def flat(settings: Mapping[str, Any]) -> dict[str, str]:
    """`section.key` to the value in nearly TOML form; inline tables stay whole."""
    found: dict[str, str] = {}
    for section, value in settings.items():
        if section in LEFT_OUT:
            continue
        if isinstance(value, Mapping):
            found |= {f"{section}.{key}": _text(own) for key, own in value.items()}
        else:
            found[section] = _text(value)
    return found


def stated_settings(settings: Mapping[str, Any]) -> dict[str, str]:
    defaults = _defaults()
    return {key: value for key, value in flat(settings).items() if defaults.get(key) != value}


def differing(runs: Sequence[Mapping[str, Any]]) -> dict[str, tuple[str, ...]]:
    """The keys in which runs differ, with each run's value, empty where it has none."""
    tables = [flat(run) for run in runs]
    keys = dict.fromkeys(key for table in tables for key in table)
    values = {key: tuple(table.get(key, "") for table in tables) for key in keys}
    return {key: each for key, each in values.items() if len(set(each)) > 1}


@lru_cache(maxsize=1)
def _defaults() -> dict[str, str]:
    from edge_server.config.config import Config

    return flat(tomllib.loads(Config().to_toml()))


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_text(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_text, value)) + "]"
    return json.dumps(value, ensure_ascii=False, default=str)


NO_NOISE = (
    "No differential privacy: nothing limits what the model reveals about a single device's data. "
    'To limit it, set [privacy] mechanism = "gaussian" (deploy/docs/explanation/privacy.md).'
)
OPEN_UPDATES = (
    "No secure aggregation: the server could read each device's update. The training examples never left "
    "the devices."
)


def privacy_section(run: RunContents) -> Section:
    """The privacy of a run: differential privacy of its model, secure aggregation of updates."""
    return Section("Privacy", (*_noise(run), *_masks(run)))


def _noise(run: RunContents) -> tuple[Block, ...]:
    if run.setting("privacy", "mechanism", "none") == "none" and run.summary.epsilon is None:
        return (Paragraph(NO_NOISE),)
    epsilon, delta = run.summary.epsilon, run.summary.delta
    spent = "not known" if epsilon is None or delta is None else f"{epsilon:.3g} at delta {delta:g}"
    clips = [record.clip for record in run.history if record.clip is not None]
    budget = run.setting("privacy", "budget")
    facts = (
        ("epsilon spent", spent),
        ("budget", "none" if budget is None else f"epsilon {budget:g}"),
        ("mechanism", str(run.setting("privacy", "mechanism", "not known"))),
        ("noise multiplier", f"{run.setting('privacy', 'noise-multiplier', 'not known')}"),
        ("clip (L2 norm)", _clip(run, clips)),
        (
            "amplification by sampling",
            "counted" if run.setting("privacy", "amplification") else "not counted",
        ),
        ("protected unit", "a device with all of its data"),
    )
    return (FactList(facts), Paragraph(_meaning(epsilon, delta)))


def _clip(run: RunContents, clips: list[float]) -> str:
    stated = run.setting("privacy", "clip", "not known")
    return f"{stated}, ended at {clips[-1]:.3g}" if stated == "adaptive" and clips else str(stated)


def _meaning(epsilon: float | None, delta: float | None) -> str:
    """The definition in words (Dwork and Roth 2014, definition 2.4); neighbours differ in a device."""
    if epsilon is None or delta is None:
        return "No round has spent any of the budget."
    factor = math.exp(min(epsilon, 700.0))
    return (
        "In other words: without any one of the devices, every possible result computed from the released "
        f"models would be at most {factor:.3g} times (e to the epsilon) less or more likely, except for a "
        f"probability of {delta:g}."
    )


def _masks(run: RunContents) -> tuple[Block, ...]:
    if not run.setting("privacy", "secure-aggregation", False):
        return (Paragraph(OPEN_UPDATES),)
    holders = run.setting("privacy", "min-holders", "several")
    text = (
        f"Secure aggregation: updates were masked, and the server could read only sums over at least "
        f"{holders} updates (deploy/docs/explanation/secure-aggregation.md)."
    )
    return (Paragraph(text),)


NOT_RECORDED = "not recorded"


def origin_section(run: RunContents) -> Section:
    """The section of recipe, machine, versions and the settings that differ from the defaults."""
    rows = [(words(key), words(value)) for key, value in stated_settings(run.settings).items()]
    caption = "Settings that differ from the defaults"
    settings = (table(caption, ("setting", "value"), rows, rest="federation.toml"),) if rows else ()
    return Section("Origin", (FactList(_facts(run)), *settings))


def _facts(run: RunContents) -> tuple[tuple[str, str], ...]:
    recipe = run.setting("recipe", "summary"), run.setting("recipe", "citation")
    made = run.made
    return (
        ("recipe", run.summary.recipe or "none"),
        *((("description", str(recipe[0])),) if recipe[0] else ()),
        *((("based on", str(recipe[1])),) if recipe[1] else ()),
        ("run", run.summary.run),
        *((("started from", first.in_words()),) if (first := run.summary.started_from) else ()),
        ("started", made.date if made else NOT_RECORDED),
        ("server", _machine(made)),
        ("versions", _versions(made)),
        ("commit", (made.commit or "no git checkout") if made else NOT_RECORDED),
    )


def _machine(made: Provenance | None) -> str:
    if made is None:
        return NOT_RECORDED
    return ", ".join([made.cpu, f"{made.cores} cores", *([made.gpu] if made.gpu else []), made.system])


def _versions(made: Provenance | None) -> str:
    if made is None:
        return NOT_RECORDED
    return ", ".join(
        [f"Python {made.python}", *(f"{name} {version}" for name, version in made.versions.items())]
    )


def repeat_section(run: RunContents) -> Section:
    blocks: list[Block] = []
    if run.made:
        blocks += [Paragraph("The run was started with this command:"), Code(run.made.command)]
    words = (
        "simulate federation.toml" if run.is_simulated else f"run federation.toml {_broker_options(run.made)}"
    )
    again = [f"edge-server {words} --out again"]
    if run.history and not run.is_simulated and RunFolder(run.folder).journal.exists():
        again.append("edge-server replay .        # recomputes each aggregate from the archived updates")
    how = "to get identical bits" if run.is_simulated else "with the same devices and data"
    blocks += [
        Paragraph(f"To repeat it, in this run's folder, {how}:"),
        Code("\n".join(again)),
        _digests(run),
    ]
    return Section("How to repeat it", tuple(blocks))


def _broker_options(made: Provenance | None) -> str:
    """The broker and the certificates of the recorded command."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--broker", default="mqtt://HOST:1883")
    for name in ("--ca", "--cert", "--key"):
        parser.add_argument(name)
    found, _ = parser.parse_known_args(shlex.split(made.command) if made else [])
    return " ".join(f"--{name} {shlex.quote(value)}" for name, value in vars(found).items() if value)


def _digests(run: RunContents) -> Block:
    toml = hashlib.sha256(run.federation_toml.encode()).hexdigest()
    rows = [("seed", str(run.setting("federation", "seed", NOT_RECORDED))), ("federation.toml", toml)]
    if state := run.described.get("state_sha256"):
        rows.append((f"global model after round {run.described.get('round')}", str(state)))
    rows += [(f"tier-{tier.tier}.onnx", tier.sha256) for tier in (run.version.tiers if run.version else ())]
    if run.version and run.version.key:
        rows.append(("signing key", run.version.key))
    cells = [(words(name), words(value)) for name, value in rows]
    return table("Seed and sha256 digests of the run", ("name", "value"), cells)


def file_section(run: RunContents) -> Section:
    return Section("Settings", (Code(run.federation_toml, folded="Resolved federation.toml"),))
