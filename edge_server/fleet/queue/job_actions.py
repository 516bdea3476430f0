"""What jobs run: `edge-server run` of a federation file, and fleet actions.

To add an action, write the arguments of its verb and enter it in `ACTIONS`.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from edge_client.transport.broker_link import TlsFiles
from edge_server.fleet.queue.job import RUN, Job
from edge_server.fleet.settings.service import ServedFederation
from edge_server.storage.service_folder import ServiceFolder

EDGE_SERVER = (sys.executable, "-P", "-m", "edge_server.cli.main")
"""`-P`: modules in the job's working directory are not taken for ours."""


@dataclass(frozen=True)
class Action:
    """A kind of job.

    `verb` is that of `edge-server`, `arguments` are those of a job with its run folder; `identity` is the
    certificate that the command has on the broker. `is_over` tells from the run folder whether an attempt
    that failed has come to the end of its work, so that another one would be for nothing. A job has no
    options that are `set_by_service`.
    """

    verb: tuple[str, ...]
    arguments: Callable[[Job, Path, ServiceFolder], list[str]]
    identity: str
    is_over: Callable[[Path], bool]
    set_by_service: tuple[str, ...]


def split_words(words: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The words before the first option, and all from there."""
    first = next((index for index, word in enumerate(words) if word.startswith("-")), len(words))
    return tuple(words[:first]), tuple(words[first:])


def _run(job: Job, run: Path, folder: ServiceFolder) -> list[str]:
    """`edge-server run`; a run that has begun goes on by the file that it was begun with."""
    (source, *overrides), options = split_words(job.words)
    resolved = run / "federation.toml"
    chosen = [f"clients.where={job.where}"] if job.where else []
    begun = [str(resolved)] if resolved.exists() else [source, *overrides, *chosen]
    return [*begun, "--out", str(run), "--registry", str(folder.registry), *_service(folder), *options]


def _rollout(job: Job, run: Path, folder: ServiceFolder) -> list[str]:
    """`edge-server rollout`, which goes on by itself after an interruption."""
    version, options = split_words(job.words)
    where = ["--where", job.where] if job.where else []
    named = ["--registry", str(folder.registry), "--federation", job.federation, *where]
    return [*version, *named, *_service(folder), *options]


def _client_rollout(job: Job, run: Path, folder: ServiceFolder) -> list[str]:
    """`edge-server client-release rollout`, which goes on by itself after an interruption."""
    release, options = split_words(job.words)
    where = ["--where", job.where] if job.where else []
    return [*release, *where, *_service(folder), *options]


def _service(folder: ServiceFolder) -> list[str]:
    """The folder whose inventory has the operator's labels."""
    return ["--service", str(folder.path)]


def _has_summary(run: Path) -> bool:
    return (run / "summary.json").exists()


ACTIONS: Mapping[str, Action] = {
    RUN: Action(("run",), _run, "server", _has_summary, ("out", "registry", "new", "service")),
    "rollout": Action(
        ("rollout",), _rollout, "rollout", lambda run: True, ("registry", "federation", "where", "service")
    ),
    "client-rollout": Action(
        ("client-release", "rollout"), _client_rollout, "updates", lambda run: True, ("where", "service")
    ),
}  # Each action by its name


def command_of(
    job: Job, run: Path, folder: ServiceFolder, served: ServedFederation, program: Sequence[str] = EDGE_SERVER
) -> list[str]:
    """The command line of a job's run; options of the job win over the broker of `service.toml`."""
    action = ACTIONS[job.action]
    rest = action.arguments(job, run, folder)
    return [*program, *action.verb, *_broker(served, action.identity), *rest]


def _broker(served: ServedFederation, identity: str) -> list[str]:
    """The broker's options; without the authority's folder the job itself names certificate and key."""
    tls = served.tls(identity)
    if served.authority is None:
        tls = TlsFiles(served.ca, None, None)
    named = {"--ca": tls.ca, "--cert": tls.certificate, "--key": tls.key}
    files = [
        word for option, path in named.items() if path is not None for word in (option, str(path.absolute()))
    ]
    return ["--broker", served.broker, *files]
