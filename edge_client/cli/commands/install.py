"""`edge-client install`: make the launcher and the first environment of a client that can be updated."""

import argparse
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from edge_client.cli.options import Option
from edge_client.system.plain_text import print_result
from schemas.errors import ConfigError, EdgeError, PeerError

if TYPE_CHECKING:
    from edge_client.agent.client_update.slots import ClientSlots

HELP = "install a client that can be updated, also without a network"
EXAMPLES = """\
examples:
  edge-client install edge-client-0.2.0.tar --trust signing.pub --root /var/lib/edge-client/client
  edge-client install --root /var/lib/edge-client/client       with the environment of this command

No network is needed: the archive, made by `edge-server client-release make --out`, has all wheels. Its
signature (edge-client-0.2.0.tar.manifest.json) lies in its folder. Start the client by its launcher:

  /var/lib/edge-client/client/launch run --config /etc/edge-client/client.toml

Later releases come over the connection to the broker (`edge-server client-release rollout`). The user of the
service must own the folder.

exit codes: 0 done, 1 failed, 2 bad usage, or a release that is not trusted or not for this board
"""


OPTIONS = (
    Option("release", Path, "archive of a release (default: none)", metavar="RELEASE.tar", nargs="?"),
    Option("--root", Path, "folder of the launcher and its environments", metavar="DIR", required=True),
    Option("--trust", Path, "the key that must have signed the release", metavar="KEY.pub"),
)


def execute(args: argparse.Namespace) -> int:
    from edge_client.agent.client_update.slots import ClientSlots
    from edge_client.storage.atomic_files import usable_folder

    new = not args.root.exists()
    root = usable_folder(args.root, option="--root").resolve()
    slots = ClientSlots(root)
    if slots.current():
        raise ConfigError(
            "a client is installed there",
            key=f"--root {root}",
            remedy="`edge-server client-release rollout` updates it",
        )
    try:
        target = _adopt_environment() if args.release is None else _install_release(args, slots)
    except EdgeError:
        if new:
            shutil.rmtree(root)
        raise
    launcher = slots.make(target)
    text = f"installed; start it with: {launcher} run --config client.toml"
    return print_result(args, {"launcher": str(launcher), "environment": target}, text)


def _adopt_environment() -> str:
    """The environment of this command."""
    from edge_client.agent.client_update.launcher import PROGRAM

    if not Path(sys.prefix, PROGRAM).exists():
        raise ConfigError(f"install: {sys.prefix} has no {PROGRAM}", remedy="name the archive of a release")
    return sys.prefix


def _install_release(args: argparse.Namespace, slots: "ClientSlots") -> str:
    """Fill the first slot; raises `ConfigError` for a release that is not trusted or does not fit."""
    from edge_client.agent.client_update.installer import Objected, ReleaseInstaller
    from edge_client.agent.client_update.slots import InstalledRelease
    from edge_client.security.trusted_key import check_release, read_trusted_key
    from edge_client.storage.atomic_files import file_sha256
    from edge_client.storage.client_archive import DamagedArchive
    from schemas.security.manifest import decode_manifest, manifest_path

    if args.trust is None:
        raise ConfigError("install: name the key that must have signed the release with --trust KEY.pub")
    key, signature = read_trusted_key(args.trust), manifest_path(args.release)
    try:
        digest = file_sha256(args.release)
        manifest = check_release(decode_manifest(signature.read_bytes()), key, sha256=digest)
    except OSError as error:
        raise ConfigError(
            f"{error.filename}: {error.strerror}", remedy="copy the release and its signature"
        ) from error
    except PeerError as error:
        raise ConfigError(
            f"{args.release} is not trusted: {error}", remedy="copy it and signing.pub again"
        ) from error
    note = InstalledRelease(name=manifest.run, digest=digest, issued_at=manifest.issued_at)
    installer = ReleaseInstaller(slots, slots.root)
    try:
        slot = installer.fill(args.release, note)
    except (DamagedArchive, Objected) as error:
        raise ConfigError(f"{args.release}: {error}", remedy="fetch a release for this board") from error
    installer.try_start(slot)
    return slot.name
