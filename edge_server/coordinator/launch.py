"""Running a federation from a checked configuration: broker, run folder, coordinator, server."""

import argparse
import contextlib
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from edge_client.cli.app import DONE, FAILED, INTERRUPTED, SUSPENDED
from edge_client.system.plain_text import say
from edge_client.system.process_memory import lasting_objects
from edge_client.transport.broker_link import BrokerAddress, TlsFiles, is_loopback, parse_address
from edge_server.config.config import Config
from edge_server.coordinator.reception import Reception, open_reception
from edge_server.coordinator.round_rules import make_rules
from edge_server.coordinator.run_start import lock_folder, open_run
from edge_server.coordinator.standby import standby_status, writing_right
from edge_server.observability.snapshot import Watcher, WatcherGroup
from edge_server.observability.terminal.log_lines import PlainDisplay
from edge_server.observability.watchers import watchers
from edge_server.storage.disk import told_in_words
from edge_server.storage.records import Summary
from edge_server.storage.service_folder import RUNS, run_name
from edge_server.transport.broker.launch import running_broker
from edge_server.transport.lease.keeper import LeaseKeeper
from schemas.errors import format_count

if TYPE_CHECKING:
    from edge_server.coordinator.coordinator import Coordinator
    from edge_server.storage.recovery import Recovered
    from edge_server.transport.object_store.store import ObjectStore

OWN_BROKERS = ("auto", "mosquitto", "embedded")


@contextlib.contextmanager
def broker_address(broker: str, tls: TlsFiles | None = None) -> Iterator[BrokerAddress]:
    """The user's broker by URL, or a broker that runs for as long as the block."""
    if broker not in OWN_BROKERS:
        yield parse_address(broker, tls)
        return
    with (
        tempfile.TemporaryDirectory(prefix="edge-broker-") as directory,
        running_broker(broker, Path(directory)) as running,  # type: ignore[arg-type]
    ):
        yield parse_address(running.url)


@dataclass(frozen=True)
class ServerStart:
    """What a server is started with; `run` names a new run, `service` is the folder with the inventory."""

    config: Config
    address: BrokerAddress
    watcher: Watcher
    out: Path
    registry: Path
    run: str | None
    service: Path | None

    @property
    def federation(self) -> str:
        return self.config.federation.name


def serve(
    config: Config,
    address: BrokerAddress,
    watcher: Watcher,
    *,
    out: Path,
    registry: Path | None = None,
    run: str | None = None,
    lease: LeaseKeeper | None = None,
    service: Path | None = None,
) -> Summary:
    """Run a federation to its end, Ctrl-C included, and leave its run folder at `out`.

    A standby that takes over passes the `lease` that it holds; it is given back at the end. The final models
    are entered in the `registry`, by default the one next to `out`. An unfinished run in
    `out` is resumed under its own name; a new one is called `run`. The operator's labels are those in the
    inventory of the `service` folder, or of the default one. Raises `Suspended` where the run is not
    over.
    """
    from edge_server.coordinator.known_inputs import with_known_inputs
    from edge_server.coordinator.scaling import with_scaling
    from edge_server.releases.registry.register import default_registry

    start = ServerStart(config, address, watcher, out, registry or default_registry(out), run, service)

    def measure(asking: Config, folder: Path) -> Summary:
        print_notices([f"asks the devices for statistics of their data first: {folder}"])
        name = run_name(f"{config.federation.name[:29]}-statistics")
        summary = _serve(
            replace(start, config=asking, watcher=PlainDisplay(sys.stderr), out=folder, run=name)
        )
        if summary.outcome == "interrupted":
            print_notices(
                [f"interrupted before the first round; the same command with --out {out} continues"]
            )
        return summary

    registries = [start.registry, RUNS / "registry"]
    scaled = with_scaling(with_known_inputs(config, registries, out), out, registries, measure)
    return _serve(replace(start, config=scaled), lease)


def _serve(start: ServerStart, held: LeaseKeeper | None = None) -> Summary:
    """`serve` of a configuration in which nothing is left to be asked."""
    with (
        lock_folder(start.out),
        writing_right.lease_of(start.address, start.federation, start.out, held) as lease,
        open_reception(start.config, start.address, lease) as reception,
    ):
        # torch and all that needs it is imported when devices already get answers.
        return _serve_received(start, lease, reception)


def _serve_received(start: ServerStart, lease: LeaseKeeper | None, reception: Reception) -> Summary:
    """Serve once the lease is held and devices get answers; the run's report and models come after."""
    from edge_server.coordinator.publisher import open_object_store
    from edge_server.coordinator.reception import watched_labels
    from edge_server.coordinator.server import Server
    from edge_server.observability.integrations.open import open_bridges
    from edge_server.releases.registry.register import try_enter_run

    config, address = start.config, start.address
    with (
        open_object_store(config.object_store, start.out / "object-store") as object_store,
        open_bridges(config, address, start.registry) as bridges,
        watched_labels(start.service, start.federation) as labels,
    ):
        coordinator, recovered = _open_coordinator(start, object_store)
        print_notices(coordinator.model.notices)
        watcher = WatcherGroup(start.watcher, bridges)
        server = Server(address, coordinator, watcher, recovered, lease, reception, labels)
        warn_of_open_broker(address, start.federation, server.warn)
        with stopped_by_signals(server.stop, server.suspend), lasting_objects():
            summary = server.run()
        from edge_server.observability.report.report import write_report

        folder = coordinator.storage.folder.path
        write_report(folder)
        try_enter_run(start.registry, folder)
    return summary


def _open_coordinator(
    start: ServerStart, object_store: "ObjectStore | None"
) -> "tuple[Coordinator, Recovered | None]":
    """The coordinator of a new run, or of the unfinished one in the folder with what is known of it."""
    from edge_server.coordinator.coordinator import assemble
    from edge_server.coordinator.initial_model import find_initial_model
    from edge_server.observability.report.contents import write_provenance
    from edge_server.security.manifest_signer import open_manifest_signer

    config = start.config
    folder, recovered = open_run(start.out, config, make_rules(config), now=time.monotonic())
    write_provenance(folder.path)
    new = start.run or run_name(start.federation)
    run = recovered.federation.run if recovered else new
    signer = open_manifest_signer(start.federation, run, folder.path, config.federation.signing_key)
    resume = recovered.resumption if recovered else None
    first = None if resume else find_initial_model(config, [start.registry, RUNS / "registry"], folder)
    coordinator = assemble(
        config, run, folder, resume=resume, signer=signer, object_store=object_store, first=first
    )
    return coordinator, recovered


def warn_of_open_broker(
    address: BrokerAddress, federation: str, warn: Callable[[str, str], None], *, loopback: bool = False
) -> None:
    """Warn, later and from another thread, if the broker accepts clients without credentials.

    A broker on a loopback address is tested only with `loopback`.
    """
    from edge_client.cli.doctor.broker import strangers

    def look() -> None:
        found = strangers(address, federation)
        if found.level != "ok":
            warn("broker without access control:", f"{found.detail}: {found.remedy}")

    if loopback or not is_loopback(address.host):
        threading.Thread(target=look, name="strangers", daemon=True).start()


def run_and_report(
    args: argparse.Namespace, out: Path, run: Callable[[BrokerAddress, Watcher], Summary]
) -> int:
    """Run with the requested broker and watchers; print where the run is, or how to resume it."""
    try:
        with (
            told_in_words(out),
            broker_address(args.broker, TlsFiles(args.ca, args.cert, args.key)) as address,
            watchers(args, out) as watcher,
        ):
            summary = run(address, watcher)
    except writing_right.Suspended as pause:
        standby = standby_status.following(out)
        here = f"the same command with --out {out} continues"
        there = f"the standby on {standby} continues, and what {out} holds is older from then on"
        say(f"edge-server: {pause}; {there if standby else here}", file=sys.stderr)
        return FAILED if pause.failed else SUSPENDED
    except writing_right.Deposed as end:
        say(f"edge-server: {end}; nothing more is written to {out}", file=sys.stderr)
        return FAILED
    print_run_folder(out, args.format)
    return exit_code(summary)


def print_notices(notices: Iterable[str]) -> None:
    """Print what the user should know before the run begins, on standard error."""
    for line in notices:
        say(f"edge-server: {line}", file=sys.stderr, flush=True)


_printed: set[str] = set()


def print_new_notices(notices: Iterable[str]) -> None:
    """`print_notices` without those that an earlier run in this process has printed."""
    new = [line for line in notices if line not in _printed]
    _printed.update(new)
    print_notices(new)


def print_run_folder(out: Path, output_format: str) -> None:
    """Print where the run is, unless the output is for programs."""
    if output_format == "table":
        say(f"\nrun folder {out}, report {out / 'report.html'}")
        say(f"in the browser: edge-server dashboard {out}")
        if (out / "signing.pub").exists() and any((out / "onnx").glob("tier-*.onnx")):
            say(f"models are signed: edge-client infer MODEL.onnx INPUT --trust {out / 'signing.pub'}")


def print_finished(out: Path, summary: Summary, output_format: str) -> int:
    """Print that the run in a folder is finished, and how to begin a new one; returns the exit code."""
    rounds = format_count(summary.rounds, "round")
    say(
        f"the run in {out} is finished: {rounds}, nothing is left to do; for a new run name another folder "
        "with --out, or none",
        file=sys.stderr if output_format != "table" else sys.stdout,
    )
    print_run_folder(out, output_format)
    return exit_code(summary)


def exit_code(summary: Summary) -> int:
    """0 when the run finished, 130 when it was interrupted, 1 when it failed."""
    return {"finished": DONE, "interrupted": INTERRUPTED}.get(summary.outcome, FAILED)


@contextlib.contextmanager
def stopped_by_signals(end: Callable[[], None], suspend: Callable[[], None] | None = None) -> Iterator[None]:
    """SIGINT ends the run, SIGTERM suspends it if it can; a second signal ends the process.

    Only a program's main thread can be told of signals: in another one nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    actions = {signal.SIGINT: end, signal.SIGTERM: suspend or end}
    before = {number: signal.getsignal(number) for number in actions}

    def stop(number: int, frame: object) -> None:
        actions[signal.Signals(number)]()
        signal.signal(number, before[signal.Signals(number)])

    for number in before:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
