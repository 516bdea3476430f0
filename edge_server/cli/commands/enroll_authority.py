"""The authority that `edge-server enroll` issues certificates with: opened, or made on first use."""

import argparse
import socket
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge_client.system.plain_text import say
from schemas.errors import ConfigError

if TYPE_CHECKING:
    from edge_server.security.identity.authority import Authority


OPTIONS = {
    "hosts": "--host",
    "door-port": "--enrolment-port",
    "device-days": "--days",
    "site": "--within",
}
"""The option of each key of `authority.toml` that is called otherwise."""


def authority_of(args: argparse.Namespace, folder: Path) -> "Authority":
    """The existing authority, with the given broker settings, or a new one, which has nothing to renew."""
    from pydantic import ValidationError

    from edge_server.security.identity.authority import renew_service_certificates
    from edge_server.security.identity.settings import FILE
    from schemas.base import kebab

    open_or_make = _opened if args.renew or (folder / FILE).exists() else _made
    try:
        authority = open_or_make(args, folder)
    except ValidationError as error:
        problem = error.errors()[0]
        key = kebab(str(problem["loc"][0]))
        raise ConfigError(f"{OPTIONS.get(key, f'--{key}')}: {problem['msg']}") from error
    with authority.locked():
        renew_service_certificates(authority)
    return authority


def _stated(args: argparse.Namespace) -> dict[str, Any]:
    """The settings of an authority that the options state."""
    options = {
        "hosts": tuple(args.host) if args.host else None,
        "port": args.port,
        "enrolment_port": args.enrolment_port,
        "device_days": args.days,
        "broker_folder": args.broker_folder,
        "site": args.within,
    }
    return {key: value for key, value in options.items() if value is not None}


def _opened(args: argparse.Namespace, folder: Path) -> "Authority":
    from edge_server.security.identity.authority import open_authority
    from edge_server.security.identity.settings import AuthoritySettings

    authority = open_authority(folder)
    settings = authority.settings
    if args.federation not in (settings.federation, "federation"):
        raise ConfigError(
            f"the authority in {folder} is of federation '{settings.federation}', not '{args.federation}'"
        )
    if args.within not in (None, settings.site):
        raise ConfigError(
            f"--within {args.within}: the authority in {folder} is that of "
            + (f"the site '{settings.site}'" if settings.site else "a whole federation")
        )
    return replace(
        authority, settings=AuthoritySettings.model_validate({**settings.model_dump(), **_stated(args)})
    )


def _made(args: argparse.Namespace, folder: Path) -> "Authority":
    from edge_server.security.identity.authority import make_authority
    from edge_server.security.identity.settings import AuthoritySettings

    own = {"hosts": tuple(dict.fromkeys((socket.gethostname(), "localhost", "127.0.0.1")))}
    settings = AuthoritySettings.model_validate({"federation": args.federation, **own, **_stated(args)})
    authority = make_authority(folder, settings)
    if args.format != "json":
        say(f"made the authority of '{args.federation}' in {folder}: keep it private, keep a copy")
    return authority
