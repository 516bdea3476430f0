"""What `edge-server enroll` does for one device and for each device of a fleet file."""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from edge_client.system.plain_text import say
from schemas.errors import ConfigError

if TYPE_CHECKING:
    from edge_server.security.identity.authority import Authority
    from edge_server.storage.inventory.enrolments import EnrolmentEntries
    from schemas.security.enrolment import EnrolmentCode


def check_labels(args: argparse.Namespace) -> None:
    """Check `--label` and `--note`; raises `ConfigError`."""
    from edge_server.storage.inventory.records import checked_note
    from schemas.selectors import MAX_LABELS

    labels = stated_labels(args)
    if len(labels) > MAX_LABELS:
        raise ConfigError(f"{len(labels)} labels; a device has at most {MAX_LABELS}", key="--label")
    if args.note is not None:
        checked_note(args.note)
    if args.gateway and (labels or args.note is not None):
        raise ConfigError(
            "the inventory lists devices", key="--gateway", remedy="leave --label and --note out"
        )
    if not has_inventory(args) and (args.note is not None or (labels and args.code)):
        raise ConfigError(
            "labels of a device with a code, and notes, are kept in the inventory, and there is none",
            remedy="name the folder of `edge-server serve` with --service DIR",
        )


def stated_labels(args: argparse.Namespace) -> dict[str, str]:
    """The labels of `--label`."""
    from schemas.selectors import parse_label

    return dict(parse_label(text) for text in args.label)


def has_inventory(args: argparse.Namespace) -> bool:
    """Whether there is a service folder, or the user names one."""
    from edge_server.storage.service_folder import default_service_folder

    return args.service is not None or default_service_folder().is_dir()


def trusted_key(args: argparse.Namespace) -> str:
    """The public key for the device to trust, as text; empty if it trusts the broker."""
    from edge_server.security.signing_key import public_key_text

    if (key := args.signing_key) is not None:
        is_new, text = not key.exists(), public_key_text(key)
        if is_new and args.format != "json":
            say(f"made the signing key {key}: name it in the server's file, [federation] signing-key")
        return text
    return str(args.trust.read_text()) if args.trust is not None else ""


def write_code(
    args: argparse.Namespace, authority: "Authority", device: str, trust: str
) -> "tuple[EnrolmentCode, Path]":
    """Issue a code and write its file."""
    from edge_client.security.identity.private_files import private_folder, write_private
    from edge_server.security.identity.enrolment_codes import issue_code
    from schemas.security.enrolment import encode_code

    code = issue_code(authority, device, lifetime_s=args.hours * 3600, trust=trust)
    path = private_folder(args.out) / f"{device}.code"
    write_private(path, f"{encode_code(code)}\n".encode())
    return code, path


def enter(args: argparse.Namespace, authority: "Authority") -> None:
    """Enter one enrolled device in the inventory, if there is one."""
    from edge_server.storage.inventory.enrolments import enrolment_entries

    with enrolment_entries(args.service, authority.settings.federation) as entries:
        if entries is not None:
            enter_device(entries, authority, args.device, stated_labels(args), args.note)


def enter_device(
    entries: "EnrolmentEntries",
    authority: "Authority",
    device: str,
    labels: Mapping[str, str | None],
    note: str | None,
) -> None:
    from edge_client.security.identity.certificates import validity_of
    from edge_server.storage.audit_log import local_user

    valid = authority.certificates(device)
    until = validity_of(valid[0]).not_after if valid else None
    at, who = authority.clock(), local_user()
    entries.enter(device, labels=labels, note=note, at=at, until=until, who=who)
