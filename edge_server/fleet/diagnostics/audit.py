"""Requests for diagnostics in the audit log."""

from collections.abc import Sequence
from pathlib import Path

from edge_server.fleet.diagnostics.inquiry import Terms
from edge_server.storage import audit_log


def record_request(path: Path, who: str, federation: str, devices: Sequence[str], terms: Terms) -> None:
    """Append who asks which devices for what, as one entry."""
    target = f"{federation}/{devices[0]}" if len(devices) == 1 else federation
    asked = {"devices": list(devices)} if len(devices) != 1 else {}
    limits = {} if terms.since_s is None else {"since_s": terms.since_s}
    audit_log.append(
        path, who=who, what=f"diagnostics {terms.what}", target=target, after={**asked, **limits} or None
    )
