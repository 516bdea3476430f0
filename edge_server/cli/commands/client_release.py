"""`edge-server client-release`: make, list and roll out releases of the client itself."""

import argparse
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge_client.cli.options import Option, Subparsers, add_verb, add_verbs
from edge_client.system.plain_text import print_json, print_result, print_rows, print_table, say
from edge_server.cli.commands import client_rollout
from edge_server.cli.commands.fleet.serve import SERVICE, service_folder
from schemas.errors import ConfigError

if TYPE_CHECKING:
    from edge_server.releases.client.store import ReleaseStore, StoredRelease
    from edge_server.storage.service_folder import ServiceFolder

EXAMPLES = """\
examples:
  edge-server client-release make --wheels wheels-pi --signing-key signing.key --extras onnx-client,trust
  edge-server client-release list
  edge-server client-release show 0.2.0
  edge-server client-release rollout 0.2.0 --where site=barn --canary 10%% --groups 2 --success 0.95

A release is an archive of wheels with all that a board needs, signed with the key that the boards trust
(`trust` in their client.toml). A board fetches it over its MQTT connection, installs it next to the running
client, runs its doctor and the model in use there, switches, watches it, and goes back by itself if it
fails. The board's client must have been started by the launcher that `edge-client install` makes.
"""


def register(subparsers: Subparsers) -> None:
    verbs = add_verbs(
        subparsers,
        "client-release",
        SERVICE,
        help="releases of the client itself: make, list, roll out",
        description="Releases of the client itself.",
        examples=EXAMPLES.replace("%%", "%"),
    )
    _make(verbs.verbs)
    about = "every release, the newest first"
    verbs.add("list", list_releases, help=about, example="list")
    about, example = "what a release contains", "show 0.2.0"
    verbs.add("show", show_release, Option("release", metavar="RELEASE"), help=about, example=example)
    client_rollout.register(verbs.verbs)


MAKE = """\
examples:
  pip download -d wheels 'edge-federation[onnx-client,trust]'          on a board of that kind
  edge-server client-release make --wheels wheels --extras onnx-client,trust --signing-key signing.key
  edge-server client-release make --wheels wheels --extras onnx-client,trust --out stick

The folder has the wheel of edge-federation and those of all that it needs. Boards with another processor or
another Python need a release of their own: --name tells them apart. Made again of the same wheels, a release
is signed anew: a board then accepts it although it runs a later one.
"""


def _make(verbs: Subparsers) -> None:
    add_verb(
        verbs,
        "make",
        pack_release,
        (
            SERVICE,
            Option("--wheels", Path, "folder of the wheels", metavar="DIR", required=True),
            Option("--name", help="name of the release (default: the package's version)", metavar="NAME"),
            Option(
                "--extras",
                help="extras of edge-federation that boards install (default: %(default)s)",
                default="onnx-client,trust",
                metavar="LIST",
            ),
            Option("--federation", help="federation of the boards, if there are several", metavar="NAME"),
            Option(
                "--signing-key",
                Path,
                "the server's key, `signing-key` in federation.toml (default: DIR/signing.key)",
                metavar="FILE",
            ),
            Option("--out", Path, "also copy the release there, for boards without a network", metavar="DIR"),
        ),
        help="pack and sign the wheels of a folder",
        examples=MAKE,
    )


def pack_release(args: argparse.Namespace) -> int:
    from edge_client.storage.atomic_files import usable_folder
    from edge_server.releases.client.offering import Wanted, make_release
    from edge_server.security.signing_key import load_or_make_signing_key
    from edge_server.storage import audit_log

    folder = service_folder(args)
    key = args.signing_key or folder.path / "signing.key"
    if not key.exists():
        raise ConfigError(
            f"signing key {key}: no such file", remedy="name the key whose signing.pub boards trust"
        )
    extras = tuple(word.strip() for word in args.extras.split(",") if word.strip())
    wanted = Wanted(_federation(args, folder), args.name, extras)
    if args.out is not None:
        usable_folder(args.out, option="--out")
    stored = make_release(_store(folder), args.wheels, wanted, load_or_make_signing_key(key))
    audit_log.append_entry(
        folder.audit,
        who=audit_log.local_user(),
        what="client release made",
        target=stored.name,
        after={"sha256": stored.signed.manifest.sha256, "federation": stored.federation},
    )
    copied = None if args.out is None else _store(folder).copy(stored, args.out)
    lines = [f"{stored.name}: {stored.archive.stat().st_size / 1e6:.1f} MB, for {_fits(stored)}"]
    if copied is not None:
        lines.append(
            f"for a board without a network: edge-client install {copied} --trust signing.pub --root DIR"
        )
    document = {**_document(stored), "copy": None if copied is None else str(copied)}
    return print_result(args, document, *lines)


def _federation(args: argparse.Namespace, folder: "ServiceFolder") -> str:
    from edge_server.fleet.settings.service import load_service_settings

    settings = load_service_settings(folder.settings)
    if args.federation is not None and not settings.federations:
        return str(args.federation)
    return settings.federation(args.federation).name


def list_releases(args: argparse.Namespace) -> int:
    store = _store(service_folder(args))
    releases = store.releases()
    newest = _newest_rollouts(store, releases)
    document = [{**_document(stored), "rollout": newest.get(stored.name)} for stored in releases]
    columns = ("release", "version", "federation", "for", "MB", "signed", "rollout")
    rows = [(*_line(stored), newest.get(stored.name, "")) for stored in releases]
    return print_rows(args, document, columns, rows)


def _line(stored: "StoredRelease") -> tuple[str, ...]:
    return (
        stored.name,
        stored.release.version,
        stored.federation,
        _fits(stored),
        f"{stored.archive.stat().st_size / 1e6:.1f}",
        f"{datetime.fromtimestamp(stored.signed.manifest.issued_at, UTC):%Y-%m-%d %H:%M}",
    )


def _newest_rollouts(store: "ReleaseStore", releases: "list[StoredRelease]") -> dict[str, str]:
    """The phase of each release's newest rollout."""
    from edge_server.releases.rollout.journal import RolloutJournal

    if not (store.folder / "releases.sqlite").exists():
        return {}
    journal, found = RolloutJournal(store), dict[str, str]()
    for federation in {stored.federation for stored in releases}:
        for entry in reversed(journal.newest(federation)):
            found[entry.version] = str(entry.phase)
    return found


def show_release(args: argparse.Namespace) -> int:
    stored = _store(service_folder(args)).checked_release(args.release)
    if args.format == "json":
        print_json({**_document(stored), "archive": str(stored.archive)})
        return 0
    say(f"{stored.name}: {stored.release.requirement} for {_fits(stored)}")
    say(f"archive {stored.archive}, sha256 {stored.signed.manifest.sha256}")
    say(
        f"signed with key {stored.signed.key[:16]}...; unpacked {stored.release.installed_bytes / 1e6:.1f} MB"
    )
    print_table(
        ("wheel", "MB"), [(wheel.name, f"{wheel.bytes / 1e6:.2f}") for wheel in stored.release.wheels]
    )
    return 0


def _fits(stored: "StoredRelease") -> str:
    fits = stored.release.fits
    return "any board" if fits == ("any",) else ", ".join(fits)


def _document(stored: "StoredRelease") -> dict[str, Any]:
    return {
        "release": stored.name,
        "federation": stored.federation,
        "sha256": stored.signed.manifest.sha256,
        "signed_at": stored.signed.manifest.issued_at,
        "key": stored.signed.key,
        **stored.release.model_dump(mode="json"),
    }


def _store(folder: "ServiceFolder") -> "ReleaseStore":
    from edge_server.releases.client.store import ReleaseStore

    return ReleaseStore(folder.releases)
