"""The results of ended runs in one file, so that several machines can share the work of a comparison.

Each line is the JSON of one run: the name of its folder, its settings, its small files, and no models.
"""

import lzma
import tomllib
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from edge_client.storage.atomic_files import write_synced
from edge_server.config.load import check_config
from edge_server.simulation.experiments import cells
from edge_server.simulation.experiments.league_scores import FILE as CLIENT_ACCURACIES
from edge_server.storage.run_files import first_validation_error
from schemas.errors import ConfigError

NAME = "ended-runs.jsonl.xz"
KINDS = ("runs", "league")
# The summary is written last: a run is finished when it has one.
FILES = ("federation.toml", "made.json", "history.jsonl", CLIENT_ACCURACIES, "summary.json")


class PackedRun(BaseModel):
    """One ended run: its folder's name, its settings as TOML, and its files by name."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    folder: str
    settings: str
    files: dict[str, str]


def pack_runs(plan: cells.Plan, out: Path) -> bytes | None:
    """The finished runs in `out`, in the plan's order; None if there are none, or if figures need models."""
    if plan.experiment.kind not in KINDS:
        return None
    lines = [
        _pack_run(run, out).model_dump_json() for run in plan.runs if cells.kept_run(run, out) is not None
    ]
    return pack_text("".join(f"{line}\n" for line in lines)) if lines else None


def _pack_run(run: cells.CellRun, out: Path) -> PackedRun:
    paths = [path for name in FILES if (path := cells.run_path(run, out) / name).exists()]
    files = {path.name: path.read_text(encoding="utf-8") for path in paths}
    return PackedRun(folder=run.folder, settings=cells.settings_path(run, out).read_text(), files=files)


def take_runs(source: Path, plan: cells.Plan, out: Path) -> int:
    """Write those runs of the file that belong to the plan into `out`, and return their number.

    A run that has begun in `out` stays as it is. Raises `ConfigError` before the first is written if the
    file is broken, or if one of its runs has other settings than the plan.
    """
    if plan.experiment.kind not in KINDS:
        raise ConfigError(
            "the figures of this experiment need models, which the file does not have", place=source
        )
    runs = {run.folder: run for run in plan.runs}
    found = [(runs[packed.folder], packed) for packed in _read(source) if packed.folder in runs]
    for run, packed in found:
        _check(run, packed, source)
    missing = [(run, packed) for run, packed in found if not cells.run_path(run, out).exists()]
    for run, packed in missing:
        write_synced(cells.settings_path(run, out), packed.settings.encode())
        for name in FILES:
            if name in packed.files:
                write_synced(cells.run_path(run, out) / name, packed.files[name].encode())
    return len(missing)


def _read(source: Path) -> Iterator[PackedRun]:
    try:
        text = read_text(source)
    except (OSError, EOFError, lzma.LZMAError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"cannot be read: {error}", place=source, remedy=f"expected {NAME} of a comparison"
        ) from error
    for number, line in enumerate(text.removesuffix("\n").split("\n"), start=1):
        try:
            yield PackedRun.model_validate_json(line)
        except ValidationError as error:
            reason = first_validation_error(error)
            raise ConfigError(f"line {number} is not an ended run: {reason}", place=source) from error


def _check(run: cells.CellRun, packed: PackedRun, source: Path) -> None:
    where = f"{source}: {packed.folder}"
    if absent := [
        name for name in ("federation.toml", "history.jsonl", "summary.json") if name not in packed.files
    ]:
        raise ConfigError(f"{where} has no {absent[0]}", remedy="make the file again with this version")
    try:
        settings = check_config(tomllib.loads(packed.settings), where)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"its settings are not valid TOML: {error}", place=where) from error
    if not cells.has_settings(settings, run):
        raise ConfigError(
            f"{where} has other settings", remedy="name the scale and the overrides that it was made with"
        )


# Texts in `.xz`: ended runs for other machines, and the figures of published comparisons.


ENDING = ".xz"


def pack_text(text: str) -> bytes:
    return lzma.compress(text.encode())


def read_text(path: Path) -> str:
    """The text of a file, or else of the file with `.xz` behind its name.

    Raises `OSError`, `EOFError`, `lzma.LZMAError` or `UnicodeDecodeError`.
    """
    packed = path.with_name(path.name + ENDING)
    if path.suffix != ENDING and (path.exists() or not packed.exists()):
        return path.read_text(encoding="utf-8")
    found = path if path.suffix == ENDING else packed
    return lzma.decompress(found.read_bytes()).decode()
