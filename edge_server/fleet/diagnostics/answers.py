"""What devices answer, as text; every text of a device is without characters that move the cursor."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from edge_client.system.plain_text import plain

if TYPE_CHECKING:
    from edge_server.fleet.diagnostics.inquiry import Inquired

FACTS = ("run", "round", "reason")


def safe(text: object) -> str:
    """A device's text without characters that move the cursor or begin lines."""
    return plain(str(text))


def why_none(device: "Inquired") -> str:
    # Only here: commands that print no duration start without numpy.
    from edge_server.config.units import duration_text

    again = f"; ask again in {duration_text(device.again_s)}" if device.again_s else ""
    return safe(f"{device.detail or device.status}{again}")


def findings_of(document: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    """The findings in an answer; what is no finding is left out."""
    found = (document or {}).get("doctor")
    return [finding for finding in found if isinstance(finding, dict)] if isinstance(found, list) else []


def log_lines(line: Mapping[str, Any]) -> Iterator[str]:
    """A line of a device's log as text, with its traceback."""
    facts = " ".join(f"{name}={line[name]}" for name in FACTS if name in line)
    level = str(line.get("level", "?")).upper()
    time = str(line.get("time", "?")).partition("+")[0]
    yield safe(f"{time} {level} {line.get('message', '')}" + (f" [{facts}]" if facts else ""))
    for part in str(line.get("exception", "")).splitlines():
        yield f"    | {safe(part)}"
