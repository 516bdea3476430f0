"""The origin of a run, and the commands and digests needed to repeat it."""

import argparse
import hashlib
import shlex

from edge_server.observability.report.contents import RunContents
from edge_server.observability.report.document import Block, Code, FactList, Paragraph, Section, table, words
from edge_server.observability.report.settings_table import stated_settings
from edge_server.storage.provenance import Provenance
from edge_server.storage.run_folder import RunFolder

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
    if not run.is_simulated and RunFolder(run.folder).journal.exists():
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
