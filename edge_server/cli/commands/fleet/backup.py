"""`edge-server backup`: save a service, its authorities and runs in one file, while everything runs."""

import argparse
import contextlib
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from edge_client.cli.options import Group, Option
from edge_client.system.plain_text import print_json, print_result, print_table, say
from edge_server.cli.commands.fleet.serve import SERVICE, service_folder
from schemas.errors import format_count

if TYPE_CHECKING:
    from edge_server.fleet.backup.archive import Chain
    from edge_server.fleet.backup.manifest import BackupManifest
    from edge_server.fleet.backup.sealing import Sealer
    from edge_server.fleet.backup.sources import Sources

HELP = "save a service, its runs and keys"
EXAMPLES = """\
examples:
  edge-server backup /backup/monday.backup --passphrase-file /etc/backup.pass
  edge-server backup /backup/tuesday.backup --since /backup/monday.backup --passphrase-file /etc/backup.pass
  edge-server backup home.backup --run runs/home --authority ~/.local/share/edge-federation/authority/home
  edge-server backup --verify /backup/tuesday.backup
  edge-server backup --list /backup/tuesday.backup

Servers and the service may run meanwhile. Saved are the service's folder with its runs, registry and
releases, the authorities and files that service.toml names, and signing keys. Keys are sealed with a
passphrase, from the terminal or a file (- for stdin). With --since only what the earlier backup lacks is
stored: keep both in one folder. `edge-server restore` restores.
"""


def passphrase_options(without: str) -> Group:
    """The options for the keys in a backup; `without` says what leaving them out does."""
    file = Option("--passphrase-file", Path, "file with the passphrase, - for stdin", metavar="FILE")
    return Group((file, Option("--without-keys", bool, without)), exclusive=True)


OPTIONS = (
    Option("file", Path, "file to write; it must not exist", metavar="FILE", nargs="?"),
    SERVICE,
    Option(
        "--authority",
        Path,
        "an authority besides those in service.toml; may be given several times",
        (),
        "DIR",
        many=True,
    ),
    Option(
        "--run",
        Path,
        "a run folder elsewhere, with the registry next to it; may be given several times",
        (),
        "DIR",
        many=True,
    ),
    Option("--since", Path, "store only what this backup lacks", metavar="EARLIER"),
    passphrase_options("leave out all keys and authorities"),
    Group(
        (
            Option("--list", Path, "print what a backup holds", metavar="FILE"),
            Option("--verify", Path, "read a whole backup and check each file", metavar="FILE"),
        ),
        exclusive=True,
    ),
)


def execute(args: argparse.Namespace) -> int:
    from edge_server.fleet.backup.archive import ArchiveReader, Chain
    from schemas.errors import ConfigError

    shown = args.list or args.verify
    if (args.file is None) == (shown is None):
        raise ConfigError("backup: name one FILE to write, or one with --list or --verify")
    if args.list is not None:
        return _list(ArchiveReader(args.list).manifest, args.format)
    if args.verify is not None:
        return _verify(args, Chain.open(args.verify))
    with ended_by_sigterm():
        return _make(args)


@contextlib.contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """End as with Ctrl-C on SIGTERM, so that nothing half is left."""

    def end(number: int, _: object) -> None:
        sys.exit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def read_passphrase(file: Path | None, *, twice: bool) -> str:
    """The passphrase, without its line's end; raises `ConfigError` where none can be asked for."""
    from schemas.errors import ConfigError

    if file is not None:
        try:
            text = sys.stdin.readline() if str(file) == "-" else file.read_text().partition("\n")[0]
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot be read: {error}", key=f"--passphrase-file {file}") from error
        return text.rstrip("\r\n")
    if not sys.stdin.isatty():
        raise ConfigError(
            "the keys need a passphrase",
            remedy="give --passphrase-file FILE (- for stdin), or --without-keys",
        )
    from getpass import getpass

    passphrase = getpass("passphrase of the backup: ")
    if twice and getpass("once more: ") != passphrase:
        raise ConfigError("these are two different passphrases", remedy="try again")
    return passphrase


def _make(args: argparse.Namespace) -> int:
    from edge_server.fleet.backup.making import make_backup
    from edge_server.storage import audit_log
    from edge_server.storage.service_folder import ServiceFolder

    sources = _sources(args)
    made = make_backup(args.file, sources, sealer=_sealer(args), since=args.since, report=report)
    manifest = made.manifest
    if sources.service is not None:
        audit_log.append_entry(
            ServiceFolder(sources.service).audit,
            who=audit_log.local_user(),
            what="backup",
            target=str(args.file.absolute()),
            after={"id": manifest.id, "files": len(manifest.files), "bytes": made.stored_bytes},
        )
    document = {
        "file": str(args.file),
        "id": manifest.id,
        "files": len(manifest.files),
        "bytes": made.stored_bytes,
        "left-out": list(manifest.left_out),
    }
    lines = [f"{args.file}: {format_count(len(manifest.files), 'file')}, {_size(made.stored_bytes)}"]
    if manifest.left_out:
        names = ", ".join(manifest.left_out[:5])
        lines.append(
            f"without {format_count(len(manifest.left_out), 'file')} of keys and authorities: {names}"
        )
    if manifest.parent is not None:
        lines.append(f"needs {manifest.parent.name} next to it")
    return print_result(args, document, *lines)


def _sealer(args: argparse.Namespace) -> "Sealer | None":
    from edge_server.fleet.backup.sealing import Sealer

    if args.without_keys:
        return None
    return Sealer.new(read_passphrase(args.passphrase_file, twice=True))


def _sources(args: argparse.Namespace) -> "Sources":
    """What the options name; without any of them the default folder of a service."""
    from edge_server.fleet.backup.sources import files_named_in, sources_of
    from edge_server.fleet.settings.service import load_service_settings

    if args.service is None and (args.run or args.authority):
        return sources_of(None, args.authority, args.run)
    folder = service_folder(args)
    settings = load_service_settings(folder.settings)
    stated = [served.authority for served in settings.federations]
    named = [path.expanduser().resolve() for path in (*args.authority, *stated) if path is not None]
    return sources_of(folder.path, tuple(dict.fromkeys(named)), args.run, files_named_in(settings))


def report(line: str) -> None:
    say(f"edge-server: {line}", file=sys.stderr, flush=True)


def _list(manifest: "BackupManifest", output: str) -> int:
    from datetime import UTC, datetime

    if output == "json":
        print_json(manifest.model_dump(mode="json"))
        return 0
    made = datetime.fromtimestamp(manifest.made_at, UTC)
    say(f"made {made:%Y-%m-%d %H:%M:%S} UTC by version {manifest.program}, id {manifest.id}")
    for root in manifest.roots:
        say(f"{root.kind} {root.origin} -> {root.path or '.'}")
    if manifest.parent is not None:
        say(f"builds on {manifest.parent.name}")
    rows = [
        (
            file.path,
            str(file.size),
            "sealed" if file.sealed else "here" if file.digest in manifest.stored else "earlier",
        )
        for file in manifest.files
    ]
    print_table(("file", "bytes", "stored"), rows)
    return 0


def _verify(args: argparse.Namespace, chain: "Chain") -> int:
    total = chain.verify()
    count, paths = len(chain.manifest.files), [str(path) for path in chain.paths]
    line = f"whole: {format_count(count, 'file')}, {_size(total)} in {format_count(len(paths), 'archive')}"
    return print_result(args, {"files": count, "bytes": total, "archives": paths}, line)


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB"
