"""`edge-server restore`: make a folder from a backup, on any machine."""

import argparse
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from edge_client.cli.options import Option
from edge_client.system.plain_text import print_result
from edge_server.cli.commands.fleet import backup
from schemas.errors import format_count

if TYPE_CHECKING:
    from edge_server.fleet.backup.manifest import BackupManifest

HELP = "make a folder from a backup"
EXAMPLES = """\
examples:
  edge-server restore /backup/tuesday.backup --to /var/lib/edge-fleet --passphrase-file /etc/backup.pass
  edge-server serve /var/lib/edge-fleet                     continues
  edge-server run federation.toml --broker mqtt://HOST:1883 --out /var/lib/edge-fleet/runs/home
                                                            continues with the open round

The folder must not exist, or be empty; it appears in one step when all is there. An incremental backup needs
its parents next to it. A restored run continues in a later epoch: a server that continues with the old folder
is refused, and so are its messages.
"""


OPTIONS = (
    Option("file", Path, "a file of `edge-server backup`", metavar="FILE"),
    Option("--to", Path, "new or empty folder", metavar="DIR", required=True),
    backup.passphrase_options("restore without keys and authorities"),
)


def execute(args: argparse.Namespace) -> int:
    from edge_server.fleet.backup.archive import Chain
    from edge_server.fleet.backup.restoring import check_target, restore_backup, sealer_of

    check_target(args.to)
    chain = Chain.open(args.file)
    sealer = None
    if chain.manifest.seal is not None and not args.without_keys:
        sealer = sealer_of(chain.manifest, backup.read_passphrase(args.passphrase_file, twice=False))
    with contextlib.closing(chain), backup.ended_by_sigterm():
        runs = restore_backup(
            chain, args.to, sealer=sealer, report=backup.report, noted_as=str(args.file.absolute())
        )
    document = {"folder": str(args.to), "id": chain.manifest.id, "runs": [str(run) for run in runs]}
    return print_result(args, document, *_lines(args.to, chain.manifest, runs, keys=sealer is not None))


def _lines(folder: Path, manifest: "BackupManifest", runs: tuple[Path, ...], *, keys: bool) -> Iterator[str]:
    yield f"restored {format_count(len(manifest.files), 'file')} to {folder}"
    for run in runs:
        yield f"continues when its server starts: {run}"
    for root in manifest.roots:
        if root.kind == "authority" and keys:
            yield f"authority {root.origin} is now {folder / root.path}: name it so in service.toml"
        if root.kind == "file" or (root.kind == "key" and keys):
            yield f"{root.origin} is now {folder / root.path}: put it there again, or name it so"
    if not keys:
        yield "without keys: devices that trust the old signing key take nothing from this folder's runs"
