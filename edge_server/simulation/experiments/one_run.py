"""One run of a cell with one seed, in a run folder of its own; a finished one is kept."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from edge_client.storage.atomic_files import write_synced
from edge_server.config.config import Config
from edge_server.config.load import load_config
from edge_server.observability.figures import newest_figure_text
from edge_server.observability.snapshot import Watcher
from edge_server.simulation.experiments.cells import CellRun
from edge_server.storage.records import RoundRecord, Summary
from edge_server.storage.run_files import read_run_files
from schemas.errors import ConfigError, EdgeError

FINISHED, INTERRUPTED = "finished", "interrupted"


class Simulate(Protocol):
    """Simulates one federation: `edge_server.simulation.simulator.simulate`, or a test's function."""

    def __call__(self, config: Config, *, out: Path, watcher: Watcher, resume: bool = False) -> Summary:
        """Simulate to the end, and write the run folder at `out`."""


@dataclass(frozen=True)
class EndedRun:
    """One ended run with its records; `failure` is the reason why there are none."""

    run: CellRun
    history: tuple[RoundRecord, ...] = ()
    summary: Summary | None = None
    failure: str = ""


def run_path(run: CellRun, out: Path) -> Path:
    return out / "runs" / run.folder


def do_run(run: CellRun, out: Path, simulate: Simulate, watcher: Watcher, *, alone: bool = True) -> EndedRun:
    """Run it, or resume it; a failure is reported as its reason.

    Unless it runs `alone`, other runs use the cores, and models are tested between rounds.
    """
    path, config = run_path(run, out), run.config
    write_synced(settings_path(run, out), config.to_toml().encode())
    if not alone and config.federation.testers is None:
        config = config.model_copy(update={"federation": config.federation.model_copy(update={"testers": 0})})
    resume = (path / "history.jsonl").exists()
    try:
        simulate(config, out=path, watcher=watcher, resume=resume)
        return read_run(run, path)
    except EdgeError as error:
        return EndedRun(run, failure=str(error))


def read_run(run: CellRun, path: Path) -> EndedRun:
    files = read_run_files(path)
    summary = files.summary
    failure = "" if summary.outcome in (FINISHED, INTERRUPTED) else f"{summary.outcome}: {summary.detail}"
    return EndedRun(run, files.history, summary, failure)


def kept_run(run: CellRun, out: Path) -> EndedRun | None:
    """The run if an earlier call has finished it."""
    path = run_path(run, out)
    if not (path / "summary.json").exists():
        return None
    done = read_run(run, path)
    return done if done.summary is not None and done.summary.outcome == FINISHED else None


def check_settings(run: CellRun, out: Path) -> None:
    """Refuse a run folder with other settings; the engine, its device and its workers may differ.

    Settings that were not there when the run began have their defaults.
    """
    path = settings_path(run, out)
    if path.exists() and not has_settings(load_config(str(path)), run):
        raise ConfigError(
            f"{run_path(run, out)} has other settings",
            remedy="choose another folder with --out, or remove this one",
        )


def has_settings(config: Config, run: CellRun) -> bool:
    return _without_engine(config.to_toml()) == _without_engine(run.config.to_toml())


def settings_path(run: CellRun, out: Path) -> Path:
    """The path of a run's settings, next to its folder."""
    return out / "runs" / f"{run.folder}.toml"


def _without_engine(text: str) -> str:
    engine = ("workers", "device", "engine")
    return "\n".join(line for line in text.splitlines() if line.partition(" = ")[0] not in engine)


def result_text(done: EndedRun, kept: bool) -> str:
    if done.failure or done.summary is None:
        return f"failed: {done.failure}"
    shown = newest_figure_text(done.history) or "not tested"
    return f"{shown}, finished earlier" if kept else f"{shown} in {done.summary.duration_s:.0f} s"
