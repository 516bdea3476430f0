"""`edge-server diagnose`: everything that a device tells of itself, as an archive."""

import argparse
import io
import json
import tarfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from edge_client.cli.options import Option, device_name
from edge_client.system.plain_text import print_result
from edge_server.cli.commands.fleet.asking_devices import ANSWERS, ASKING, age, answer_of, write_whole

HELP = "fetch everything a device tells of itself, as an archive"
EXAMPLES = f"""\
examples:
  edge-server diagnose pi-3
  edge-server diagnose pi-3 --since 1d --out pi-3.tar.gz

The archive has a JSON document of each part: doctor, logs, profile, crash, versions, settings. It is masked
as each part is, and can be attached to a report; read it before you publish it.

{ANSWERS}
exit codes: 0 done, 1 the device does not answer, 2 bad usage or configuration
"""


OPTIONS = (
    Option("device", device_name, "the device", metavar="DEVICE"),
    Option("--out", Path, "archive to write (default: DEVICE-DATE-TIME.tar.gz here)", metavar="FILE"),
    Option("--since", age, "log lines of the last 90s, 30m, 1h or 2d", metavar="AGE"),
    *ASKING,
)


def execute(args: argparse.Namespace) -> int:
    from edge_server.fleet.diagnostics.inquiry import Terms
    from schemas.errors import ConfigError
    from schemas.messages.remote import MAX_LOG_LINES, Diagnostic

    if args.out is not None and not args.out.name.endswith((".tar.gz", ".tgz")):
        raise ConfigError(
            "the archive is a tar.gz", key=f"--out {args.out}", remedy="end its name with .tar.gz"
        )
    path = args.out or Path(f"{args.device}-{time.strftime('%Y%m%d-%H%M%S')}.tar.gz")
    if path.exists() or not path.absolute().parent.is_dir():
        reason = "there is a file of that name" if path.exists() else "there is no such folder"
        raise ConfigError(reason, place=path, remedy="name another file with --out")
    answer = answer_of(args, Terms(Diagnostic.BUNDLE, args.since, lines=MAX_LOG_LINES))
    write_whole(path, archive(args.device, answer))
    return print_result(args, {"device": args.device, "archive": str(path)}, f"wrote {path}")


def archive(device: str, answer: Mapping[str, Any]) -> bytes:
    """The answer as a compressed archive with a document per part."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as file:
        for name, text in documents(answer):
            entry = tarfile.TarInfo(f"{device}/{name}")
            data = text.encode()
            entry.size, entry.mode, entry.mtime = len(data), 0o600, time.time()
            file.addfile(entry, io.BytesIO(data))
    return packed.getvalue()


def documents(answer: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The name and the text of each document; only names that this program knows become names of files."""
    known = ("doctor", "profile", "crash", "versions", "settings")
    head = {key: value for key, value in answer.items() if key not in (*known, "logs")}
    yield "answer.json", _text(head)
    for key in known:
        if key in answer:
            yield f"{key}.json", _text(answer[key])
    lines = answer.get("logs")
    yield (
        "logs.jsonl",
        "".join(json.dumps(line) + "\n" for line in lines if line) if isinstance(lines, list) else "",
    )


def _text(value: Any) -> str:
    return json.dumps(value, indent=2) + "\n"
